"""Decay by event time: exact, and the same wherever the log is cut."""

from __future__ import annotations

import random

import polars as pl
import pytest

from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.typeahead import HOURS
from sinks.typeahead.index import ONE, build
from sinks.typeahead.snapshots import digest
from streams.runtime.testing import Harness
from streams.typeahead import SYSTEM
from streams.typeahead.ranking import HALF_LIFE_HOURS, ranked, weighed, weight
from tests.typeahead.searches import HOUR_MS, NOON_MS, search

COUNTS = SYSTEM.projections[0]


def ranks(
    counts: list[tuple[int, str, int]], people_min: int = 1, half_life: int = 24
) -> list[tuple[str, str, int]]:
    """Of (age in hours, text, searches): (term, text, score)."""
    rows = [(NOON_MS - age * HOUR_MS, text, searches) for age, text, searches in counts]
    frame = pl.LazyFrame(rows, dict(HOURS.columns), orient="row")
    return ranked(weighed(frame, NOON_MS, half_life).collect(), people_min).rows()


def test_a_search_halves_with_every_half_life() -> None:
    weights = [weight(age, 24) for age in (0, 24, 48, 24 * 20, 24 * 30)]
    assert weights == [ONE, ONE // 2, ONE // 4, 1, 0]
    falling = [weight(age, 24) for age in range(24 * 20)]
    assert falling == sorted(falling, reverse=True)
    assert all(w <= ONE * 2 ** (-age / 24) * 1.0615 + 1 for age, w in enumerate(falling))


def test_newer_searches_outrank_more_of_them() -> None:
    found = ranks([(0, "new", 10), (72, "old", 70), (0, "both", 1), (24, "both", 2)])
    assert found == [
        ("both", "both", 2 * ONE),
        ("new", "new", 10 * ONE),
        ("old", "old", 70 * ONE // 8),
    ]


def test_spellings_are_one_term_shown_as_most_wrote_it() -> None:
    found = ranks(
        [(0, "İstanbul", 5), (0, "istanbul", 2), (1, "ISTANBUL", 3), (0, " ", 9)], half_life=1
    )
    assert found == [("istanbul", "İstanbul", 17 * ONE // 2)]


def test_what_few_have_searched_for_is_left_out() -> None:
    assert [term for term, _, _ in ranks([(0, "a", 2), (0, "b", 3)], people_min=3)] == ["b"]


def test_nothing_makes_nothing() -> None:
    assert ranks([]) == []


def cut(rows: list[object], seed: int) -> str:
    """The digest of a snapshot of this log, folded in batches cut at random."""
    chance = random.Random(seed)
    harness = Harness(COUNTS, MemorySink(COUNTS.model, MemoryStore()))
    harness.send(*rows)
    harness.run(cuts=sorted(chance.sample(range(1, len(rows)), 7)) if seed else [])
    counts = harness.rows("hours")
    newest = counts["hour_ms"].max()
    assert isinstance(newest, int)
    return digest(build(ranked(weighed(counts.lazy(), newest).collect())))


def test_other_batches_make_the_same_snapshot() -> None:
    chance = random.Random(7)
    words = ["godot", "Godot", "pozzo", "lucky", "İstanbul", "istanbul"]
    rows: list[object] = [
        search(n, chance.choice(words), event_time=NOON_MS + n * HALF_LIFE_HOURS * HOUR_MS // 100)
        for n in range(400)
    ]
    assert len({cut(rows, seed) for seed in range(4)}) == 1


@pytest.mark.parametrize("order", [1, 2])
def test_the_order_of_counts_does_not_matter(order: int) -> None:
    counts = [(n % 50, f"t{n % 13}", n) for n in range(200)]
    mixed = random.Random(order).sample(counts, len(counts))
    assert ranks(mixed) == ranks(counts)
