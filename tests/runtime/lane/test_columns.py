"""What a projection asks to be decoded: in memory and on the lane a fold sees the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.testing import Harness
from tests.runtime.clicks import CLICKED, FULLNAME, Clicked, topic
from tests.runtime.lane.bed import Bed, Keep, message, span, value

TIMES = [1_000, 5_000, 3_000]
ASKED = [None, ("click_id",), ("cost", "campaign"), ("at",), ("at", "click_id"), ()]


@dataclass
class Look(Keep):
    """Keeps what it was given."""

    batches: list[Batch] = field(default_factory=list)

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        self.batches.append(batch)
        return state, Outcome(counts={Fate.APPLIED: batch.height})


def asked(columns: tuple[str, ...] | None) -> Mapping[str, tuple[str, ...]] | None:
    return None if columns is None else {FULLNAME: columns}


def on_the_lane(columns: tuple[str, ...] | None) -> Batch:
    bed = Bed(fold=Look(), columns=asked(columns))
    records = [message(n, value(str(n), at=at)) for n, at in enumerate(TIMES)]
    bed.carry(span(bed.seat(), *records))
    (batch,) = bed.fold.batches
    assert bed.position.watermark_ms == batch.watermark_ms
    return batch


def in_memory(columns: tuple[str, ...] | None) -> Batch:
    projection = Bed(fold=Look(), columns=asked(columns)).projection
    harness = Harness(projection, MemorySink(projection.model, MemoryStore()))
    harness.send(*(Clicked(str(n), "c", at, 1) for n, at in enumerate(TIMES)))
    harness.run()
    (batch,) = projection.fold.batches
    return batch


@pytest.mark.usefixtures("either_reader")
@pytest.mark.parametrize("columns", ASKED)
def test_a_fold_sees_the_same_rows_and_event_time_whatever_it_asks_for(
    columns: tuple[str, ...] | None,
) -> None:
    lane, memory = on_the_lane(columns), in_memory(columns)
    assert_frame_equal(lane.frame, memory.frame)
    assert lane.watermark_ms == memory.watermark_ms == max(TIMES) - topic().out_of_orderness_ms
    assert lane.frame[WATERMARK].to_list()[1:] == [999, 4_999]
    wanted = set(CLICKED.columns if columns is None else columns)
    assert set(lane.frame.columns) == {*wanted, "at", OFFSET, WATERMARK}


def test_without_event_time_only_what_is_asked_for_is_read() -> None:
    timeless = replace(topic(), event_time=None)
    assert Bed(of=timeless, columns={FULLNAME: ("cost",)}).projection.reads == {FULLNAME: ("cost",)}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({FULLNAME: ("click_id", "campain")}, "test-keep: test.Clicked has no field campain"),
        ({"test.Click": ("cost",)}, "test-keep: topic test.clicks carries no test.Click"),
    ],
)
def test_a_field_that_is_not_there_is_named_with_its_agent(
    columns: Mapping[str, tuple[str, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Bed(columns=columns)


def test_the_event_time_is_found_in_every_record_that_has_it() -> None:
    """One record type with event time and one without: neither is asked for more than it has."""
    bare = replace(CLICKED, fullname="test.Bare", dtypes={"click_id": pl.String})
    two = replace(topic(), records=(CLICKED, bare))
    columns = {FULLNAME: ("cost",), "test.Bare": ()}
    assert Bed(of=two, columns=columns).projection.reads == {
        FULLNAME: ("at", "cost"),
        "test.Bare": (),
    }
