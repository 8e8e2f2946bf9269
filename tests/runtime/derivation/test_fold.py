"""What a derivation may and may not return, and what its position needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl
import pytest

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.derivation.fold import as_projection, largest
from streams.runtime.derivation.positions import (
    METADATA_BYTES_MAX,
    from_metadata,
    longest,
    to_metadata,
)
from streams.runtime.derivation.rules import Derivation
from streams.runtime.position import FilterState, Position, SourceState
from streams.runtime.sink import Upsert
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.runtime.derivation.scene import (
    DERIVATION,
    GOT,
    SOURCE,
    TARGET,
    Sent,
    batch,
    encode,
)

ROWS = [Sent(f"s{n}", n % 4, 10 * n) for n in range(25)]


def records(derivation: Derivation, rows: list[Sent]) -> pl.DataFrame:
    _, outcome = as_projection(derivation, encode).fold.fold(None, batch(0, 0, rows, 5))
    (change,) = outcome.changes
    assert isinstance(change, Upsert)
    return change.rows


def returning(frames: Mapping[str, pl.DataFrame]) -> Derivation:
    def derive(_: Batch) -> Mapping[str, pl.DataFrame]:
        return frames

    return replace(DERIVATION, derive=derive)


def test_any_cut_gives_the_same_records() -> None:
    projection = as_projection(DERIVATION, encode)
    disturbed = assert_replay_deterministic(
        projection, ROWS, 7, lambda model: MemorySink(model, MemoryStore())
    )
    assert disturbed.crashes > 0
    harness = Harness(projection, MemorySink(projection.model, MemoryStore()))
    harness.send(*ROWS)
    harness.run()
    assert harness.rows("records").height == sum(row.receivers for row in ROWS)
    assert harness.counts == {"applied": 18, "filtered": 7}


def test_records_are_numbered_by_source_row_and_carry_the_watermark_before_it() -> None:
    found = records(DERIVATION, [Sent("a", 2, 10), Sent("b", 0, 30), Sent("c", 1, 20)])
    columns = ("offset", "index", "watermark_ms")
    assert found.select(columns).rows() == [(0, 0, 5), (0, 1, 5), (2, 0, 29)]


def test_record_types_of_one_row_come_in_the_order_of_the_topic() -> None:
    other = replace(GOT, fullname="test.Other")
    target = replace(TARGET, records=(other, GOT))
    rows = pl.DataFrame({"receiver": ["r", "q"], "text": ["x", "y"], OFFSET: [1, 0]})
    derivation = replace(returning({GOT.fullname: rows, "test.Other": rows}), target=target)
    found = records(derivation, ROWS[:2])
    assert found.select("offset", "index").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [value[-1:] for value in found["value"]] == [b"y", b"y", b"x", b"x"]


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ({"test.Foreign": pl.DataFrame()}, "does not carry"),
        (
            {GOT.fullname: pl.DataFrame({"receiver": ["r"], "text": ["x"], OFFSET: [7]})},
            "offset 7",
        ),
        (
            {
                GOT.fullname: pl.DataFrame(
                    {"receiver": ["r"], "text": ["x" * largest(TARGET)], OFFSET: [0]}
                )
            },
            "at most",
        ),
    ],
)
def test_rows_that_are_not_the_targets_are_refused(
    frames: Mapping[str, pl.DataFrame], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        records(returning(frames), ROWS[:1])


def test_declarations_that_would_lose_something_are_refused() -> None:
    timeless = replace(SOURCE, event_time=None)
    with pytest.raises(ValueError, match="event time"):
        as_projection(replace(DERIVATION, source=timeless), encode)
    with pytest.raises(ValueError, match="not declared as derived"):
        as_projection(replace(DERIVATION, target=replace(TARGET, derived_from=())), encode)


def test_a_position_fits_beside_an_offset() -> None:
    source = FilterState(sources={"ab" * 8 + "/1": SourceState(1, 2, 3, 4)})
    position = Position("id", 9, 9, 7, 7, {"applied": 9}, {}, source, source)
    assert from_metadata(to_metadata(position, 3)) == (position, 3)
    for bad in ("", "1", "1 {}", "x {}", to_metadata(position, 1)[1:]):
        with pytest.raises(ValueError):
            from_metadata(bad)
    assert len(to_metadata(longest(0), 1)) < 700
    assert len(to_metadata(longest(40), 1)) < METADATA_BYTES_MAX < len(to_metadata(longest(64), 1))
