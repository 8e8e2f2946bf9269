"""What the fence of Cassandra is made of: stamps, journal, builds; and how rows are batched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.drivers import cassandra
from sinks.drivers.cassandra import CassandraSink, expiry, fences, journal, rows
from sinks.drivers.cassandra.blocks import weights
from sinks.drivers.cassandra.errors import MissingTable
from sinks.drivers.cassandra.fences import STAMP_BITS, Fence, Lane
from streams.runtime.sink import (
    FenceRefused,
    ReadModel,
    SinkRejected,
    SinkUnavailable,
    Table,
    Upsert,
    Write,
)
from tests.drivers.model import (
    EVENTS,
    SCORES,
    TOPIC,
    WINDOWS,
    at,
    events,
    no_windows,
    read_model,
    span,
    stored,
    windows,
)
from tests.drivers.rigs import CassandraRig


@pytest.fixture
def rig() -> Iterator[CassandraRig]:
    opened = CassandraRig()
    opened.sink().prepare(1)
    yield opened
    opened.close()


def dies_behind_the_fence(rig: CassandraRig, write: Write) -> tuple[Any, ...]:
    """A writer that moves the fence and is gone; what it would have stored."""
    sink: Any = rig.sink()
    left: list[tuple[Any, ...]] = []

    def dies(*arguments: Any) -> None:
        left.append(arguments)
        raise SinkUnavailable("dead")

    sink._finish = dies
    with pytest.raises(SinkUnavailable):
        sink.write(1, write)
    return left[0]


def own(rig: CassandraRig, table: str) -> int:
    """Rows of a shared table that are of this rig's model."""
    builds = [build for page in rig.store.pages(f"SELECT build FROM ${table}") for (build,) in page]
    return sum(build.startswith(rig.model.name) for build in builds)


pytestmark = pytest.mark.stack


def test_whoever_loads_next_brings_the_write_to_its_end(rig: CassandraRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 5, windows((0, "a", 5), (0, "b", 1)), events(*range(5))))
    write = span(5, 8, windows((0, "a", 8)), no_windows((0, "b")), events(5, 6, 7))
    dies_behind_the_fence(rig, write)
    assert sink.positions(1) == {(TOPIC, 0): at(5)}, "readers were told of rows that are not there"
    assert rig.sink().load(1, TOPIC, 0) == at(8)
    assert sink.positions(1) == {(TOPIC, 0): at(8)}
    assert stored(sink) == [(0, "a", 8, 0, "", 0)]
    assert len(stored(sink, "events")) == 8


def test_a_write_without_a_load_does_so_too(rig: CassandraRig) -> None:
    dies_behind_the_fence(rig, span(None, 5, windows((0, "a", 5))))
    rig.sink().write(1, span(5, 6, windows((0, "b", 1))))
    assert stored(rig.sink()) == [(0, "a", 5, 0, "", 0), (0, "b", 1, 0, "", 0)]


def test_a_seal_does_so_too(rig: CassandraRig) -> None:
    """What a sealed version holds is compared with the next one, row by row."""
    dies_behind_the_fence(rig, span(None, 5, windows((0, "a", 5))))
    assert rig.sink().seal(1) == {(TOPIC, 0): at(5)}
    assert stored(rig.sink()) == [(0, "a", 5, 0, "", 0)]


def test_a_large_write_comes_whole_out_of_the_journal(
    rig: CassandraRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CHUNK_BYTES", 1_000)
    many = windows(*((i % 3, f"{i * 7919 % 10_007}", i) for i in range(2_000)))
    dies_behind_the_fence(rig, span(None, 9, many))
    assert own(rig, "journal") > 5
    assert rig.sink().load(1, TOPIC, 0) == at(9)
    assert len(stored(rig.sink())) == 2_000


def test_a_journal_that_is_lost_is_told(rig: CassandraRig) -> None:
    dies_behind_the_fence(rig, span(None, 5, windows((0, "a", 5))))
    rig.store.define("TRUNCATE $journal")
    for call in (lambda s: s.load(1, TOPIC, 0), lambda s: s.write(1, span(5, 6))):
        with pytest.raises(SinkRejected, match="journal is lost"):
            call(rig.sink())


def test_the_journal_does_not_grow(rig: CassandraRig) -> None:
    sink = rig.sink()
    for i in range(12):
        sink.write(1, span(i or None, i + 1, windows((0, "a", i))))
    left = rig.store.plain("SELECT upto, build FROM $journal")
    assert [upto for upto, build in left if build.startswith(rig.model.name)] == [11, 12]


def test_rows_that_come_late_change_nothing(rig: CassandraRig) -> None:
    """The zombie wakes up with all its rows in hand; others have finished them and gone on."""
    first = span(None, 5, windows((0, "a", 5), (0, "b", 5), (1, "x", 5)), no_windows((0, "c")))
    slept = dies_behind_the_fence(rig, first)
    sink = rig.sink()
    sink.load(1, TOPIC, 0)
    sink.write(1, span(5, 6, windows((0, "a", 6), (0, "c", 6), (1, "y", 1)), no_windows((0, "b"))))
    before = stored(sink)
    zombie: Any = rig.sink()
    zombie._finish(*slept)
    assert stored(sink) == before
    assert sink.positions(1) == {(TOPIC, 0): at(6)}
    sink.write(1, span(6, 7, windows((9, "n", 1)), expire={"windows": 1}))
    zombie._finish(*slept)
    assert stored(sink) == [(1, "x", 5, 0, "", 0), (1, "y", 1, 0, "", 0), (9, "n", 1, 0, "", 0)]


def test_flushes_of_two_writers_take_turns(rig: CassandraRig) -> None:
    """Equal positions, equal offsets: only the fence knows which came last."""
    one, two = rig.sink(), rig.sink()
    one.write(1, span(None, 5, windows((0, "a", 1), (0, "b", 1))))
    assert two.load(1, TOPIC, 0) == at(5)
    for n in range(3):
        one.write(1, span(5, 5, windows((0, "a", 10 + n)), no_windows((0, "b"))))
        two.write(1, span(5, 5, windows((0, "a", 20 + n), (0, "b", n))))
        assert stored(rig.sink()) == [(0, "a", 20 + n, 0, "", 0), (0, "b", n, 0, "", 0)]


@given(st.lists(st.tuples(st.integers(0, 2**40), st.booleans()), max_size=30))
def test_stamps_grow_with_every_write(moves: list[tuple[int, bool]]) -> None:
    """Also where the offset stays (a flush), and where a store was turned back."""
    fence = Fence()
    for offset, back in moves:
        known = fence.position.next_offset if fence.position and not back else 0
        new = fence.moved(at(max(offset, known)), 0)
        assert fence.stamp < new.stamp < 2**63
        assert new.stamp >= offset << STAMP_BITS
        assert new.nonce != fence.nonce
        fence = new


def test_a_version_that_was_made_again_shares_nothing(rig: CassandraRig) -> None:
    slept = dies_behind_the_fence(rig, span(None, 5, windows((0, "a", 5), (0, "old", 1))))
    stale, sink = rig.sink(), rig.sink()
    assert stale.load(1, TOPIC, 0) == at(5)
    sink.switch(2)
    sink.drop(1)
    sink.prepare(1)
    zombie: Any = rig.sink()
    with pytest.raises(MissingTable):
        zombie._finish(*slept)
    for expected in (5, None):
        with pytest.raises(FenceRefused):
            stale.write(1, span(expected, 6, windows((0, "a", 6))))
        stale._builds = {1: slept[0].build}  # as if it had not looked
    assert stored(sink) == []
    sink.write(1, span(None, 2, windows((0, "a", 2))))
    assert stored(sink) == [(0, "a", 2, 0, "", 0)]
    assert sink.positions(1) == {(TOPIC, 0): at(2)}


NEWER = {"clicks": pl.Int64, "spend": pl.UInt64, "note": pl.String, "late": pl.List(pl.String)}


@pytest.mark.parametrize("values", [NEWER, {"clicks": pl.String}], ids=["another", "other type"])
def test_a_model_with_other_columns_than_its_version_is_told_before_anything_moves(
    rig: CassandraRig, values: dict[str, Any]
) -> None:
    """It is rebuilt as a version of its own, beside the old one."""
    older = rig.sink()
    older.write(1, span(None, 2, windows((0, "a", 2))))
    changed = replace(WINDOWS, values=values)
    newer = CassandraSink(ReadModel(rig.model.name, (changed,)), rig.store)
    with pytest.raises(SinkRejected, match=r"v1: its table windows was made without (late|clicks)"):
        newer.prepare(1)
    older.write(1, span(2, 3, windows((0, "b", 3))))
    newer.prepare(2)
    newer.write(2, span(None, 1))
    assert newer.seal(1) == {(TOPIC, 0): at(3)}
    newer.switch(2)
    assert older.live_version() == 2


def test_a_model_with_fewer_columns_is_no_harm(rig: CassandraRig) -> None:
    rig.sink().write(1, span(None, 2, windows((0, "a", 2))))
    fewer = replace(WINDOWS, values={"clicks": pl.Int64})
    sink = CassandraSink(ReadModel(rig.model.name, (fewer,)), rig.store)
    sink.prepare(1)
    assert sink.load(1, TOPIC, 0) == at(2)
    assert next(sink.rows(1, "windows"))["clicks"].to_list() == [2]


def test_workers_that_start_at_once_make_one_version(rig: CassandraRig) -> None:
    sinks = [rig.sink() for _ in range(4)]
    threads = [threading.Thread(target=sink.prepare, args=(2,)) for sink in sinks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, sink in enumerate(sinks):
        sink.write(2, span(None, 1, windows((0, "a", i)), partition=i))
    assert len(stored(sinks[0], version=2)) == 4
    assert sinks[0].versions() == [1, 2]


def test_a_drop_that_was_cut_short_is_resumed(
    rig: CassandraRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = rig.sink()
    sink.write(2, span(None, 1, windows((0, "a", 1))))
    with monkeypatch.context() as broken:
        broken.setattr(fences, "forget", lambda *_: (_ for _ in ()).throw(SinkUnavailable("dead")))
        with pytest.raises(SinkUnavailable):
            sink.drop(2)
    assert sink.versions() == [1, 2]
    with pytest.raises(FenceRefused):
        rig.sink().load(2, TOPIC, 0)
    other = rig.sink()
    other.prepare(2)
    assert other.load(2, TOPIC, 0) is None
    other.drop(2)
    assert other.versions() == [1]
    assert own(rig, "fences") == own(rig, "positions") == own(rig, "journal") == 0


def test_drop_finds_tables_of_older_code(rig: CassandraRig) -> None:
    extra = Table("extra", WINDOWS.key, {})
    older = CassandraSink(ReadModel(rig.model.name, (*rig.model.tables, extra)), rig.store)
    older.prepare(2)
    rig.sink().drop(2)
    found = rig.store.plain(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", rig.store.keyspace
    )
    mine = rig.model.name.replace("-", "_")
    assert [name for (name,) in found if name.startswith(mine) and "_v2_" in name] == []


def test_expired_buckets_go_some_at_a_time(
    rig: CassandraRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "EXPIRED_BUCKETS_MAX", 3)
    sink = rig.sink()
    sink.write(1, span(None, 1, *(windows((t, "a", 1), (t, "b", 2)) for t in range(10))))
    left = []
    for i in range(1, 6):
        sink.write(1, span(i, i + 1, windows((20 + i, "a", 1)), expire={"windows": 8}))
        left.append(len({row[0] for row in stored(sink) if row[0] < 10}))
    assert left == [7, 4, 2, 2, 2]
    sink.write(1, span(6, 7, windows((3, "late", 1))))
    sink.write(1, span(7, 8, expire={"windows": 8}))
    assert min(row[0] for row in stored(sink)) == 8


def test_a_time_that_is_not_first_in_the_bucket(rig: CassandraRig) -> None:
    days = Table(
        "days",
        key={"who": pl.String, "day_ms": pl.Int64, "n": pl.Int64},
        values={"v": pl.Int64},
        bucket=("who", "day_ms"),
        time="day_ms",
    )
    sink = CassandraSink(ReadModel(read_model(rankings=False).name, (days,)), rig.store)
    lines = [(who, day, n, n) for who in "ab" for day in range(4) for n in range(2)]
    frame = pl.DataFrame(lines, schema=days.columns, orient="row")
    sink.write(1, span(None, 1, Upsert(days, frame)))
    sink.write(1, span(1, 2, expire={"days": 3}))
    assert {row[:2] for row in stored(sink, "days")} == {("a", 3), ("b", 3)}
    assert {row[2] for row in stored(sink, "days")} == {0, 1}


def test_expired_rows_are_hidden_before_they_go(rig: CassandraRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 1, windows((1, "a", 1), (5, "a", 1))))
    sink.write(1, Write(TOPIC, 0, at(1), at(2, expired_ms={"windows": 4}), [windows((2, "b", 1))]))
    assert [row[0] for row in stored(sink)] == [5]


def test_a_null_overwrites_what_was_there(rig: CassandraRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 1, windows((0, "a", 1), note="here")))
    sink.write(1, span(1, 2, windows((0, "a", 1), note=None)))
    assert stored(sink) == [(0, "a", 1, 0, None, 0)]


def test_what_cassandra_cannot_take_is_refused_before_the_fence(rig: CassandraRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 1))
    blob = pl.DataFrame(
        [(1, bytes(9_000_000), [], None, None, None)], schema=EVENTS.columns, orient="row"
    )
    for change, words in (
        (windows((0, "x" * 66_000, 1)), "windows: campaign has 66000 bytes"),
        (no_windows((0, "x" * 66_000)), "windows: campaign has 66000 bytes"),
        (Upsert(EVENTS, blob), "events: a row has 9"),
    ):
        with pytest.raises(SinkRejected, match=words) as refused:
            sink.write(1, span(1, 2, change))
        assert not refused.value.transient
    assert sink.load(1, TOPIC, 0) == at(1)
    sink.write(1, span(1, 2, windows((0, "x" * 65_000, 1))))
    assert len(stored(sink)) == 1


def test_models_it_cannot_hold_are_refused() -> None:
    nowhere: Any = None
    for tables, words in (
        ((SCORES,), "no rankings"),
        ((Table("a b", WINDOWS.key, {}),), "no name"),
        ((Table("a", {"_partition": pl.Int64}, {}),), "no name"),
        ((Table("a" * 200, WINDOWS.key, {}),), "too long"),
    ):
        with pytest.raises(TypeError, match=words):
            CassandraSink(ReadModel(read_model(rankings=False).name, tables), nowhere)


@given(
    st.lists(st.integers(1, 4) | st.integers(1, 400), max_size=25),
    st.lists(
        st.sampled_from([1, 76, 400, rows.JOINED_BYTES + 1, rows.BATCH_BYTES + 1]),
        min_size=1,
        max_size=9,
    ),
)
def test_batches_hold_every_row_once(runs: list[int], pattern: list[int]) -> None:
    sizes = [pattern[i % len(pattern)] for i in range(sum(runs))]
    borders = list(rows.cuts(runs, sizes))
    assert [at for first, end in borders for at in range(first, end)] == list(range(sum(runs)))
    home = [i for i, length in enumerate(runs) for _ in range(length)]
    for first, end in borders:
        homes, taken = set(home[first:end]), sum(sizes[first:end])
        if len(homes) > 1:
            assert len(homes) <= rows.JOINED_PARTITIONS
            assert taken <= rows.JOINED_BYTES
        else:
            assert end - first <= max(rows.BATCH_ROWS, rows.JOINED_BYTES)
            assert taken <= rows.BATCH_BYTES or end - first == 1


def test_every_row_has_a_weight() -> None:
    fixed = pl.DataFrame({"a": [1, 2, 3], "b": [1.0, 2.0, None]})
    assert weights(fixed).to_list() == [32, 32, 32]
    wide = fixed.with_columns(s=pl.Series(["", "é", None]), l=pl.Series([[], ["x"], ["yy", "z"]]))
    assert weights(wide).to_list() == [32, 32 + 2 + 5, 32 + 6 + 5]


def test_rows_of_one_partition_travel_together() -> None:
    assert list(rows.cuts([1_000], [100] * 1_000)) == [
        (i, min(i + rows.BATCH_ROWS, 1_000)) for i in range(0, 1_000, rows.BATCH_ROWS)
    ]


def test_a_node_that_is_away_is_unavailable() -> None:
    from tests.drivers.rigs import cassandra_settings

    away = cassandra_settings().model_copy(update={"port": 1})
    with pytest.raises(SinkUnavailable):
        cassandra.connect(away, timeout_s=2)


def test_lanes_are_named_by_topic_and_partition() -> None:
    lane = Lane(cassandra.Build("m", 1, "00"), "a.b-c_d", 12)
    assert Lane.named(lane.build, lane.name) == lane
