"""The fence, the same for every store: each way a write can be wrong or get lost."""

from __future__ import annotations

from typing import Any

import pytest

from streams.runtime.sink import FenceRefused, Sink, SinkRejected, Write
from tests.drivers.model import (
    TOPIC,
    at,
    events,
    no_windows,
    span,
    stored,
    windows,
)
from tests.drivers.proxy import Fault
from tests.drivers.rigs import Rig
from tests.drivers.writer import Click, Writer, clean

LOG = [Click((i % 3, f"c{i % 5}"), gone=i % 7 == 6) for i in range(40)]


def opened(rig: Rig) -> Sink:
    sink = rig.sink()
    sink.prepare(1)
    return sink


def test_first_write_needs_an_absent_position(rig: Rig) -> None:
    sink = opened(rig)
    assert sink.load(1, TOPIC, 0) is None
    with pytest.raises(FenceRefused):
        sink.write(1, span(0, 5, windows((0, "a", 1))))
    assert stored(sink) == []
    sink.write(1, span(None, 5, windows((0, "a", 1))))
    assert sink.load(1, TOPIC, 0) == at(5)
    assert stored(sink) == [(0, "a", 1, 0, "", 0)]
    with pytest.raises(FenceRefused):
        sink.write(1, span(None, 5, windows((0, "a", 2))))
    assert stored(sink) == [(0, "a", 1, 0, "", 0)]


def test_the_whole_position_is_compared_not_its_offset(rig: Rig) -> None:
    sink = opened(rig)
    first = Write(TOPIC, 0, None, at(5, watermark_ms=7, counts={"applied": 5}))
    sink.write(1, first)
    other = at(5, watermark_ms=8, counts={"applied": 5})
    with pytest.raises(FenceRefused):
        sink.write(1, Write(TOPIC, 0, other, at(6), [windows((0, "a", 1))]))
    sink.write(1, Write(TOPIC, 0, first.position, at(6), [windows((0, "a", 1))]))
    assert sink.positions(1) == {(TOPIC, 0): at(6)}


@pytest.mark.parametrize("cut", [1, 3, 40])
def test_replay_with_other_borders_changes_nothing(rig: Rig, cut: int) -> None:
    sink = opened(rig)
    Writer(sink, LOG).drain(rows=cut)
    assert stored(sink) == clean(LOG)
    replay = Writer(rig.sink(), LOG)
    replay.position = None
    assert not replay.send(replay.prepared(11))
    replay.drain()
    assert stored(sink) == clean(LOG)
    assert [row[0] for row in stored(sink, "events")] == sorted(range(40), key=str)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_broken_line_at_any_request_loses_and_doubles_nothing(rig: Rig, fault: Fault) -> None:
    """Every request of a write is broken once; the worker then looks and goes on."""
    sink = opened(rig)
    log: list[Click] = list(LOG[:10])
    Writer(sink, log).drain()
    for request in range(40):
        log.extend(LOG[: 10 + request % 3])
        writer = Writer(sink, log)
        write = writer.prepared(20)
        fired = rig.broken(fault, request, lambda broken, w=write: broken.write(1, w))
        writer.load()
        writer.drain(rows=3)
        assert stored(sink) == clean(log)
        assert len(stored(sink, "events")) == len(log)
        if not fired:
            break
    assert request >= 1, "no request was broken"
    assert request < 39, "the write never got through"


def test_lost_reply_then_the_same_write_again(rig: Rig) -> None:
    sink = opened(rig)
    write = span(None, 5, windows((0, "a", 5)), events(0, 1, 2, 3, 4))
    sink.write(1, write)
    with pytest.raises(FenceRefused):
        sink.write(1, write)
    assert sink.load(1, TOPIC, 0) == at(5)
    assert stored(sink) == [(0, "a", 5, 0, "", 0)]
    assert len(stored(sink, "events")) == 5


def test_a_zombie_with_an_overlapping_batch_is_refused(rig: Rig) -> None:
    zombie = Writer(opened(rig), LOG)
    zombie.send(zombie.prepared(5))
    late = zombie.prepared(20)
    live = Writer(rig.sink(), LOG)
    live.send(live.prepared(10))
    assert not zombie.send(late)
    assert zombie.next == 15
    live.drain()
    assert stored(live.sink) == clean(LOG)


def test_two_in_flight_the_second_arrives_first(rig: Rig) -> None:
    writer = Writer(opened(rig), LOG)
    first = writer.prepared(5)
    writer.position = first.position
    second = writer.prepared(5)
    assert not writer.send(second)
    assert writer.position is None
    assert writer.send(first)
    writer.drain()
    assert stored(writer.sink) == clean(LOG)


def test_an_older_restored_state_is_noticed_and_filled(rig: Rig) -> None:
    writer = Writer(opened(rig), LOG)
    writer.send(writer.prepared(10))
    older = rig.snapshot()
    writer.send(writer.prepared(10))
    rig.restore(older)
    assert stored(writer.sink) == clean(LOG, 10)
    assert not writer.send(writer.prepared(10)), "a hole of ten events was left open"
    assert writer.next == 10
    writer.drain()
    assert stored(writer.sink) == clean(LOG)
    assert len(stored(writer.sink, "events")) == len(LOG)


def test_a_recreated_topic_is_refused(rig: Rig) -> None:
    sink = opened(rig)
    sink.write(1, span(None, 5))
    other = at(5, topic_id="another-topic-id-00000")
    with pytest.raises(FenceRefused):
        sink.write(1, Write(TOPIC, 0, other, at(9, topic_id=other.topic_id)))
    assert sink.load(1, TOPIC, 0) == at(5)


def test_a_partition_moves_between_writers(rig: Rig) -> None:
    one, two = Writer(opened(rig), LOG), Writer(rig.sink(), LOG)
    for rows in (3, 5, 7):
        assert one.send(one.prepared(rows))
        two.load()
        assert two.send(two.prepared(rows))
        one.load()
    one.drain()
    assert stored(two.sink) == clean(LOG)


def test_partitions_have_nothing_to_do_with_each_other(rig: Rig) -> None:
    sink = opened(rig)
    Writer(sink, LOG, partition=0).drain()
    Writer(sink, LOG[:10], partition=11).drain()
    assert stored(sink, partition=0) == clean(LOG)
    assert stored(sink, partition=11) == clean(LOG[:10], partition=11)
    assert len(stored(sink)) == len(clean(LOG)) + len(clean(LOG[:10]))
    assert sink.positions(1) == {(TOPIC, 0): at(40), (TOPIC, 11): at(10)}


def test_a_provisional_flush_passes_the_same_check(rig: Rig) -> None:
    sink = opened(rig)
    sink.write(1, span(None, 5, windows((0, "a", 1))))
    sink.write(1, span(5, 5, windows((0, "a", 2), (1, "b", 1))))
    sink.write(1, span(5, 5, windows((0, "a", 3)), no_windows((1, "b"))))
    assert stored(sink) == [(0, "a", 3, 0, "", 0)]
    sink.write(1, span(5, 6, windows((0, "a", 4))))
    with pytest.raises(FenceRefused):
        sink.write(1, span(5, 5, windows((0, "a", 3))))
    assert stored(sink) == [(0, "a", 4, 0, "", 0)]


def test_changes_apply_in_their_order(rig: Rig) -> None:
    sink = opened(rig)
    sink.write(
        1,
        span(
            None,
            5,
            windows((0, "a", 1), (0, "b", 1)),
            no_windows((0, "a"), (9, "x")),
            windows((0, "a", 3)),
            no_windows((0, "b")),
        ),
    )
    assert stored(sink) == [(0, "a", 3, 0, "", 0)]
    sink.write(1, span(5, 6, no_windows((0, "a"))))
    assert stored(sink) == []


def test_an_empty_write_moves_the_position(rig: Rig) -> None:
    sink = opened(rig)
    sink.write(1, span(None, 3, windows(), no_windows(), events()))
    sink.write(1, span(3, 4))
    assert sink.load(1, TOPIC, 0) == at(4)
    assert stored(sink) == []


def test_a_wrong_write_is_refused_in_clear_words(rig: Rig) -> None:
    import polars as pl

    from streams.runtime.sink import Table, Upsert
    from tests.drivers.model import WINDOWS

    sink = opened(rig)
    good = windows((0, "a", 1)).rows
    wrong: dict[str, Any] = {
        "windows.clicks is Int64, not Float64": good.with_columns(
            pl.col("clicks").cast(pl.Float64)
        ),
        "windows has columns": good.drop("note"),
        "windows.campaign is part of the key and holds a null": good.with_columns(
            pl.lit(None, pl.String).alias("campaign")
        ),
    }
    for words, rows in wrong.items():
        with pytest.raises(SinkRejected, match=words):
            sink.write(1, span(None, 1, Upsert(WINDOWS, rows)))
    stranger = Table("strangers", {"k": pl.Int64}, {})
    with pytest.raises(SinkRejected, match="strangers is not a table of"):
        sink.write(1, span(None, 1, Upsert(stranger, pl.DataFrame({"k": [1]}))))
    with pytest.raises(SinkRejected, match="events has no time column"):
        sink.write(1, span(None, 1, expire={"events": 5}))
    assert sink.load(1, TOPIC, 0) is None
