"""Amounts: exact, or refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.payments.cards import holds_card_number
from schemas.payments.currencies import EXPONENTS, converted, decimal_text, minor_units


@pytest.mark.parametrize(
    ("text", "currency", "amount"),
    [("10.05", "EUR", 1005), ("10", "EUR", 1000), ("-0.1", "EUR", -10), ("7", "JPY", 7),
     ("1.234", "KWD", 1234), ("0.0001", "CLF", 1)],
)  # fmt: skip
def test_minor_units(text: str, currency: str, amount: int) -> None:
    assert minor_units(text, currency) == amount


@pytest.mark.parametrize(
    ("text", "currency"),
    [("1.005", "EUR"), ("1.5", "JPY"), ("NaN", "EUR"), ("1e2", "EUR"), ("", "EUR"), ("1,5", "EUR"),
     (" 1", "EUR"), ("1.", "EUR"), ("١", "EUR"), ("1", "eur"), ("1", "QQQ")],
)  # fmt: skip
def test_what_is_not_exact_is_refused(text: str, currency: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        minor_units(text, currency)


@given(st.integers(-(10**17), 10**17), st.sampled_from(sorted(EXPONENTS)))
def test_text_and_back(amount: int, currency: str) -> None:
    assert minor_units(decimal_text(amount, currency), currency) == amount


@given(
    st.integers(1, 10**15),
    st.sampled_from(["EUR", "JPY", "KWD", "CLF"]),
    st.decimals("0.000001", "1000000", places=6),
    st.sampled_from(["USD", "VND", "BHD", "UYW"]),
)
def test_a_conversion_is_at_most_half_a_unit_off(
    amount: int, currency: str, rate: object, into: str
) -> None:
    got = converted(amount, currency, str(rate), into)
    exact = Fraction(amount, 10 ** EXPONENTS[currency]) * Fraction(str(rate))
    off = Fraction(got, 10 ** EXPONENTS[into]) - exact
    assert abs(off) <= Fraction(1, 2 * 10 ** EXPONENTS[into])


@pytest.mark.parametrize("amount, expected", [(1, 0), (3, 2), (5, 2), (7, 4)])
def test_halves_go_to_the_even_neighbour(amount: int, expected: int) -> None:
    assert converted(amount, "EUR", "0.5", "USD") == expected


@pytest.mark.parametrize(
    ("text", "card"),
    [("4242 4242 4242 4242", True), ("tok:5555555555554444", True), ("4242424242424241", False),
     ("tok_123456789012", False), ("wallet:alice", False)],
)  # fmt: skip
def test_card_numbers_are_recognised(text: str, card: bool) -> None:
    assert holds_card_number(text) is card
