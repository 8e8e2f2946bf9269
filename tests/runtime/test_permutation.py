"""Codes: one for each number, back again, and nothing to count on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.runtime.permutation import ALPHABET, Codes

SEVEN = Codes("secret", 7, "test")
ELEVEN = Codes("secret", 11, "test")


@pytest.mark.parametrize("chars", [1, 2])
@pytest.mark.parametrize("secret", ["a", "b"])
def test_every_number_has_one_code_and_every_code_one_number(chars: int, secret: str) -> None:
    codes = Codes(secret, chars, "test")
    made = [codes.code(n) for n in range(codes.size)]
    assert len(set(made)) == codes.size == 62**chars
    assert [codes.number(one) for one in made] == list(range(codes.size))


@given(st.integers(0, 62**7 - 1))
def test_there_and_back(number: int) -> None:
    code = SEVEN.code(number)
    assert len(code) == 7
    assert set(code) <= set(ALPHABET)
    assert SEVEN.number(code) == number


@given(st.integers(0, 2**63 - 1))
def test_every_64_bit_id_has_a_public_form(number: int) -> None:
    assert ELEVEN.number(ELEVEN.code(number)) == number


@given(st.text(alphabet=ALPHABET, min_size=7, max_size=7))
def test_every_text_is_the_code_of_a_number(code: str) -> None:
    assert SEVEN.code(SEVEN.number(code)) == code


def test_neighbours_share_nothing_but_chance() -> None:
    """Of 2,000 neighbours, each place holds the same character about once in 62."""
    codes = [SEVEN.code(n) for n in range(2_001)]
    same = sum(
        a == b for one, next_ in itertools.pairwise(codes) for a, b in zip(one, next_, strict=True)
    )
    assert 150 < same < 310  # 2,000 * 7 / 62 = 226, and five deviations
    assert codes != sorted(codes)


def test_secret_purpose_and_length_make_other_codes() -> None:
    others = [Codes("other", 7, "test"), Codes("secret", 7, "links"), Codes("secret", 8, "test")]
    made = [[one.code(n)[:7] for n in range(50)] for one in [SEVEN, *others]]
    assert len({tuple(codes) for codes in made}) == 4


@pytest.mark.parametrize("number", [-1, 62**7])
def test_a_number_outside_has_no_code(number: int) -> None:
    with pytest.raises(ValueError, match="has no code"):
        SEVEN.code(number)


@pytest.mark.parametrize("code", ["", "123456", "12345678", "123456!", "12345é7"])
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(ValueError, match="not a code"):
        SEVEN.number(code)
