"""Which searches count: a log in memory, the real step."""

from __future__ import annotations

import random

import pytest

from schemas.typeahead.events import QuerySearched
from schemas.typeahead.folding import QUERY_CHARS_MAX
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.outcome import Fate
from streams.runtime.projection import Projection
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness, assert_replay_deterministic
from streams.typeahead import SYSTEM
from streams.typeahead.fold import LATENESS_MS
from tests.typeahead.searches import HOUR_MS, NOON_MS, search

COUNTS, RECENT = SYSTEM.projections
BOTH = pytest.mark.parametrize("projection", [COUNTS, RECENT], ids=lambda one: one.name)


def memory(model: ReadModel) -> MemorySink:
    return MemorySink(model, MemoryStore())


def folded(*rows: QuerySearched, projection: Projection = COUNTS) -> Harness:
    harness = Harness(projection, memory(projection.model))
    harness.send(*rows)
    harness.run()
    return harness


def counts(harness: Harness) -> dict[tuple[int, str], int]:
    rows = harness.rows("hours").select("hour_ms", "text", "searches").iter_rows()
    return {((hour - NOON_MS) // HOUR_MS, text): searches for hour, text, searches in rows}


def test_searches_are_counted_by_the_hour_and_as_they_were_written() -> None:
    later = NOON_MS + HOUR_MS
    harness = folded(
        search(1),
        search(2),
        search(3, "Godot"),
        search(4, "  godot \t x "),
        search(5, event_time=later),
    )
    assert counts(harness) == {(0, "godot"): 2, (0, "Godot"): 1, (0, "godot x"): 1, (1, "godot"): 1}


def test_a_decomposed_letter_is_the_composed_one() -> None:
    assert counts(folded(search(1, "cafe\u0301"), search(2, "caf\u00e9"))) == {(0, "caf\u00e9"): 2}


@BOTH
@pytest.mark.parametrize(
    "wrong",
    [
        {"finished": False},
        {"hits": 0},
        {"hits": -1},
        {"query": " \t "},
        {"query": "x" * (QUERY_CHARS_MAX + 1)},
    ],
    ids=["half a word", "found nothing", "minus", "nothing to see", "a pasted text"],
)
def test_only_finished_queries_that_found_something_count(
    projection: Projection, wrong: dict[str, object]
) -> None:
    harness = folded(search(1), search(2, **wrong), projection=projection)
    assert harness.counts == {Fate.APPLIED: 1, Fate.FILTERED: 1}


def test_half_words_on_the_way_to_a_query_leave_nothing() -> None:
    typed = [search(n, "godot"[: n + 1], user_id="u", finished=n == 4) for n in range(5)]
    assert counts(folded(*typed)) == {(0, "godot"): 1}


@BOTH
def test_a_search_counts_once_however_often_it_is_delivered(projection: Projection) -> None:
    harness = folded(search(1), search(2), search(1), projection=projection)
    assert harness.counts == {Fate.APPLIED: 2, Fate.DUPLICATE: 1}


def test_one_person_is_one_voice_in_an_hour() -> None:
    again = [search(n, query, user_id="u") for n, query in enumerate(("Godot", "godot", "GODOT"))]
    later = search(9, user_id="u", event_time=NOON_MS + HOUR_MS)
    harness = folded(*again, search(8), later)
    assert counts(harness) == {(0, "Godot"): 1, (0, "godot"): 1, (1, "godot"): 1}
    assert harness.counts == {Fate.APPLIED: 3, Fate.FILTERED: 2}


def test_an_id_used_again_for_another_search_is_another_search() -> None:
    assert counts(folded(search(1), search(1, "pozzo"))) == {(0, "godot"): 1, (0, "pozzo"): 1}


def test_a_search_is_late_once_its_hour_is_closed() -> None:
    closed = NOON_MS + HOUR_MS + LATENESS_MS + COUNTS.topic.out_of_orderness_ms
    harness = folded(
        search(1, event_time=closed), search(2), search(3, event_time=NOON_MS + HOUR_MS)
    )
    assert harness.counts == {Fate.APPLIED: 2, Fate.LATE: 1}
    assert [offset for offset, _ in harness.late] == [1]


def test_minutes_and_the_users_own_searches() -> None:
    harness = folded(
        search(1), search(2), search(3, event_time=NOON_MS + 60_000), projection=RECENT
    )
    minutes = harness.rows("minutes").select("minute_ms", "text", "score")
    assert sorted(minutes.iter_rows()) == [(NOON_MS, "godot", 2), (NOON_MS + 60_000, "godot", 1)]
    own = harness.rows("own").select("user_id", "text", "searched_ms")
    assert set(own.iter_rows()) == {
        ("u-1", "godot", NOON_MS),
        ("u-2", "godot", NOON_MS),
        ("u-3", "godot", NOON_MS + 60_000),
    }


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_batches_and_crashes_change_nothing(projection: Projection, seed: int) -> None:
    chance = random.Random(seed)
    rows = []
    for number in range(120):
        back_ms = chance.choice((0, 0, 0, HOUR_MS, LATENESS_MS + HOUR_MS))
        rows.append(
            search(
                number - chance.choice((0, 0, 0, 1, 9)),
                chance.choice(("godot", "Godot", "pozzo", "lucky")),
                user_id=f"u-{chance.randrange(4)}",
                finished=chance.random() < 0.8,
                hits=chance.randrange(3),
                event_time=NOON_MS + number * HOUR_MS // 20 - back_ms,
            )
        )
    disturbed = assert_replay_deterministic(projection, rows, seed, memory)
    assert disturbed.batches > 1
    assert disturbed.crashes > 0
    assert disturbed.replayed > 0
