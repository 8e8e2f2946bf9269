"""Which pieces a read needs and which are merged next, without a store."""

from __future__ import annotations

import polars as pl
import pytest

from sinks.drivers.s3 import frames, plan
from sinks.drivers.s3.manifest import FINAL, Piece
from sinks.drivers.s3.plan import Merge
from tests.drivers.model import EVENTS, WINDOWS, events


def piece(name: str, deletes: bool = False, **ranges: tuple[int, int]) -> Piece:
    return Piece(name, 0, 1, 1, 1, deletes=deletes, ranges=ranges)


def tiers(*cut_and_level: tuple[int, int], rows: int = 1) -> list[Piece]:
    return [Piece("", 0, 1, rows, 1, cut=cut, level=level) for cut, level in cut_and_level]


def names(pieces: object) -> str:
    return "".join(one.key for one in pieces)  # type: ignore[attr-defined]


HOURS = [piece(n, start_ms=(i, i), clicks=(i * 10, i * 10 + 5)) for i, n in enumerate("abcd")]


@pytest.mark.parametrize(
    ("bounds", "read"),
    [
        ({}, "abcd"),
        ({"start_ms": (1, 3)}, "bc"),
        ({"start_ms": (3, None)}, "d"),
        ({"start_ms": (None, 0)}, ""),
        ({"clicks": (5, 21)}, "abc"),
        ({"clicks": (6, 10)}, ""),
        ({"start_ms": (0, 2), "clicks": (10, None)}, "b"),
        ({"spend": (10, None)}, "abcd"),
    ],
)
def test_pieces_outside_the_bounds_are_not_read(bounds: dict[str, plan.Bound], read: str) -> None:
    found = plan.reads(WINDOWS, HOURS, bounds)
    assert names(found.plain) == read
    assert found.groups == []


def test_a_value_rules_no_piece_out_that_others_share_keys_with() -> None:
    """The newer row must be seen, to know that the older one is replaced."""
    old, new = (
        piece("o", start_ms=(0, 5), clicks=(0, 1)),
        piece("n", start_ms=(5, 6), clicks=(9, 9)),
    )
    gone = piece("x", deletes=True, start_ms=(8, 8))
    found = plan.reads(WINDOWS, [old, gone, new], {"clicks": (0, 2)})
    assert found.plain == []
    assert [names(group) for group in found.groups] == ["on", "x"]
    assert names(plan.reads(WINDOWS, [old, gone, new], {"start_ms": (6, 8)}).plain) == "n"


def test_pieces_fall_apart_in_any_key_column() -> None:
    table = frames.Table("t", {"hour": pl.Int64, "offset": pl.Int64, "name": pl.String}, {})
    found = plan.overlapping(
        table,
        [
            piece("a", hour=(0, 9), offset=(0, 9)),
            piece("b", hour=(0, 9), offset=(10, 19)),
            piece("c", hour=(5, 5), offset=(19, 30)),
            piece("d", hour=(20, 20), offset=(0, 30)),
        ],
    )
    assert [names(group) for group in found] == ["a", "bc", "d"]
    assert plan.overlapping(table, []) == []
    assert len(plan.overlapping(table, [piece("a"), piece("b")])) == 1, "no ranges, no knowledge"


def test_eight_of_a_level_become_one_of_the_next() -> None:
    assert plan.due(WINDOWS, tiers(*[(0, 0)] * 7)) is None
    assert plan.due(WINDOWS, tiers(*[(0, 0)] * 8)) == Merge(0, 8, 1)
    assert plan.due(WINDOWS, tiers(*[(0, 1)] * 8)) == Merge(0, 8, 2)
    assert plan.due(WINDOWS, tiers((0, 1), *[(0, 0)] * 8)) == Merge(1, 9, 1)
    assert plan.due(WINDOWS, tiers(*[(0, 1)] * 2, *[(0, 0)] * 6)) is None
    assert plan.due(WINDOWS, tiers(*[(0, 0)] * 8, rows=plan.MERGE_ROWS_MAX)) is None


def test_what_the_log_has_passed_becomes_one_for_good() -> None:
    assert plan.due(EVENTS, tiers(*[(0, 0)] * 3)) is None
    assert plan.due(EVENTS, tiers((0, 1), (0, 0), (1, 0))) == Merge(0, 2, FINAL)
    assert plan.due(EVENTS, tiers((0, FINAL), (1, 0), (1, 0), (2, 0))) == Merge(1, 3, FINAL)
    assert plan.due(EVENTS, tiers((0, FINAL), (1, FINAL), (2, 0))) is None
    assert plan.due(EVENTS, tiers(*[(0, 0)] * 8, rows=plan.SMALL_ROWS)) is None, "they wait"


def test_rows_are_cut_where_their_offsets_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "CUT", 10)
    rows = events(8, 9, 10, 11, 25).rows
    found = frames.cuts(EVENTS, rows, 8)
    assert [(cut, part["offset"].to_list()) for cut, part in found] == [
        (0, [8, 9]), (1, [10, 11]), (2, [25]),
    ]  # fmt: skip
    spans = [frames.span_of(EVENTS, range(8, 26), cut) for cut, _ in found]
    assert spans == [range(8, 10), range(10, 20), range(20, 26)]
    assert [cut for cut, _ in frames.cuts(WINDOWS, rows, 8)] == [0]
