"""The packed trie beside a plain search of all terms."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.typeahead import index as packed
from sinks.typeahead.index import DEPTH_MAX, LEAF, LISTED, ONE, BadSnapshot, Index, build
from tests.typeahead.searches import terms


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes for few terms, so that small sets have deep tries."""
    monkeypatch.setattr(packed, "LEAF", 4)
    monkeypatch.setattr(packed, "LISTED", 3)
    monkeypatch.setattr(packed, "DEPTH_MAX", 5)


def opened(scores: dict[str, int], folder: Path) -> Index:
    file = folder / "some.arrow"
    file.unlink(missing_ok=True)
    file.write_bytes(build(terms(scores)))
    return Index(file)


def plain(scores: dict[str, int], found: list[str]) -> list[str]:
    return sorted(found, key=lambda term: (-scores[term], term))


def one_edit(a: str, b: str) -> bool:
    """Whether one insertion, deletion, substitution or transposition makes b of a."""
    if len(a) > len(b):
        a, b = b, a
    if len(b) - len(a) == 1:
        return any(b[:i] + b[i + 1 :] == a for i in range(len(b)))
    different = [i for i in range(len(a)) if a[i] != b[i]] if len(a) == len(b) else [0] * 3
    if len(different) == 2:
        i, j = different
        return j == i + 1 and (a[i], a[j]) == (b[j], b[i])
    return len(different) == 1


def near(scores: dict[str, int], prefix: str) -> set[str]:
    """Terms whose beginning is one edit away, the first letter being right."""
    lengths = (len(prefix) - 1, len(prefix), len(prefix) + 1)
    return {
        term
        for term in scores
        if term[0] == prefix[0]
        and not term.startswith(prefix)
        and any(one_edit(prefix, term[:length]) for length in lengths if length <= len(term))
    }


WORDS = st.dictionaries(
    st.text("abé字 ", min_size=1, max_size=8), st.integers(1, 50), min_size=1, max_size=60
)


@pytest.mark.usefixtures("small")
@settings(max_examples=60, deadline=None)
@given(scores=WORDS, prefix=st.text("abé字 ", max_size=9), k=st.integers(1, 8))
def test_the_best_are_those_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, scores: dict[str, int], prefix: str, k: int
) -> None:
    index = opened(scores, tmp_path_factory.getbasetemp())
    found = [index.term(row) for row in index.best(prefix, k)]
    wanted = plain(scores, [term for term in scores if term.startswith(prefix)])[:k]
    assert [scores[term] for term in found] == [scores[term] for term in wanted]
    assert all(term.startswith(prefix) for term in found)
    assert len(set(found)) == len(found)
    if k <= packed.LISTED:
        assert found == wanted


@pytest.mark.usefixtures("small")
@settings(max_examples=80, deadline=None)
@given(scores=WORDS, prefix=st.text("abé字", min_size=3, max_size=8))
def test_the_near_are_those_of_a_plain_search(
    tmp_path_factory: pytest.TempPathFactory, scores: dict[str, int], prefix: str
) -> None:
    index = opened(scores, tmp_path_factory.getbasetemp())
    found = {index.term(row) for row in index.near(prefix, 1_000)}
    assert {term for term in found if not term.startswith(prefix)} == near(scores, prefix)


def test_a_large_set_is_answered_as_a_plain_search(tmp_path: Path) -> None:
    chance = random.Random(3)
    syllables = [a + b for a in "bdgklmnprst" for b in "aeiou"]
    scores = {
        "".join(chance.choices(syllables, k=chance.randint(1, 5))): chance.randint(1, 10**6)
        for _ in range(20_000)
    }
    index = opened(scores, tmp_path)
    assert len(index) == len(scores) > LEAF * 20
    for term in chance.sample(sorted(scores), 60):
        for length in range(len(term) + 1):
            rows = index.best(term[:length], 10)
            wanted = plain(scores, [one for one in scores if one.startswith(term[:length])])[:10]
            assert [index.term(row) for row in rows] == wanted
        row = index.row(term)
        assert row is not None
        assert (index.text(row), index.score(row)) == (term, scores[term] * ONE)
    assert index.row("no such term") is None
    assert len(index.best("", LISTED * 4)) == LISTED * 4


def test_terms_longer_than_the_trie_is_deep_are_found(tmp_path: Path) -> None:
    head = "how to wait for somebody called "
    assert len(head) > DEPTH_MAX
    index = opened({f"{head}{n:04}": n + 1 for n in range(LEAF * 3)}, tmp_path)
    assert [index.term(row) for row in index.best(f"{head}01", 2)] == [f"{head}0199", f"{head}0198"]
    assert index.best(f"{head}x", 2) == []


def test_what_is_shown_need_not_be_what_is_typed(tmp_path: Path) -> None:
    frame = terms({"istanbul": 2, "izmir": 1}).with_columns(
        text=terms({"İstanbul": 1, "izmir": 1})["text"]
    )
    file = tmp_path / "some.arrow"
    file.write_bytes(build(frame))
    index = Index(file)
    assert [index.text(row) for row in index.best("i", 5)] == ["İstanbul", "izmir"]


def test_the_same_terms_make_the_same_bytes() -> None:
    scores = {f"term {n * 7919 % 1000}": n for n in range(1, 1000)}
    backwards = dict(reversed(scores.items()))
    assert build(terms(scores)) == build(terms(backwards))


def test_children_lie_in_order(tmp_path: Path) -> None:
    index = opened({f"{n:05}": n + 1 for n in range(5_000)}, tmp_path)
    first = list(index._first)
    assert all(a <= b for a, b in pairwise(first))
    assert first[-1] == len(index._letter)


def test_nothing_is_found_in_an_empty_snapshot(tmp_path: Path) -> None:
    index = opened({}, tmp_path)
    assert index.best("", 5) == index.near("abc", 5) == []
    assert index.row("a") is None


@pytest.mark.parametrize("content", [b"", b"no arrow", build(terms({"a": 1}))[:-20]])
def test_a_broken_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "some.arrow"
    file.write_bytes(content)
    with pytest.raises(BadSnapshot):
        Index(file)
