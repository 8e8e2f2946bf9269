"""What the fence of ClickHouse is made of, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sinks.drivers.clickhouse import ClickHouseSink, ddl
from streams.runtime.sink import FenceRefused, ReadModel, SinkUnavailable, Table
from tests.drivers.model import (
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
from tests.drivers.rigs import ClickHouseRig

pytestmark = pytest.mark.stack


@pytest.fixture
def rig() -> Iterator[ClickHouseRig]:
    opened = ClickHouseRig()
    opened.sink().prepare(1)
    yield opened
    opened.close()


def count(rig: ClickHouseRig, table: str) -> int:
    """Stored rows, superseded ones too."""
    name = ddl.rows(rig.model.name, table, 1)
    return int(rig.client.query(f"SELECT count() FROM {name}").result_rows[0][0])


def slept(rig: ClickHouseRig, *looks: Any) -> Any:
    """A writer whose looks at the position show what was there long ago."""
    sink: Any = rig.sink()
    seen = list(looks)
    sink._stored = lambda *_: seen.pop(0)
    return sink


def test_rows_ahead_of_the_position_are_folded_again(rig: ClickHouseRig) -> None:
    """Dead between rows and position; the next worker cuts its batches elsewhere."""
    dying: Any = rig.sink()

    def dies(*_: Any) -> None:
        raise SinkUnavailable("dead")

    dying._move = dies
    with pytest.raises(SinkUnavailable):
        dying.write(1, span(None, 8, windows((0, "a", 8)), no_windows((0, "b")), events(*range(8))))
    sink = rig.sink()
    assert sink.load(1, TOPIC, 0) is None
    sink.write(1, span(None, 5, windows((0, "a", 5), (0, "b", 1)), events(*range(5))))
    sink.write(1, span(5, 9, windows((0, "a", 9)), no_windows((0, "b")), events(5, 6, 7, 8)))
    assert stored(sink) == [(0, "a", 9, 0, "", 0)]
    assert len(stored(sink, "events")) == 9


def test_rows_ahead_of_the_position_do_not_show(rig: ClickHouseRig) -> None:
    """As a seal leaves them that came between the rows of a write and its position."""
    sink, sealed = rig.sink(), rig.sink()
    sink.write(1, span(None, 5, windows((0, "a", 5)), events(*range(5))))

    def refused(*_: Any) -> None:
        raise FenceRefused("sealed")

    sealed._move = refused  # type: ignore[attr-defined]
    with pytest.raises(FenceRefused):
        sealed.write(1, span(5, 8, windows((0, "a", 8), (0, "b", 1)), events(5, 6, 7)))
    assert stored(sink) == [(0, "a", 5, 0, "", 0)]
    assert len(stored(sink, "events")) == 5


def test_the_same_span_again_inserts_nothing(rig: ClickHouseRig) -> None:
    write = span(None, 5, events(*range(5)))
    for _ in range(3):
        with pytest.raises(FenceRefused):
            slept(rig, None, None).write(1, write)
    assert count(rig, "events") == 5


def test_equal_rows_of_another_span_are_not_taken_for_a_repetition(rig: ClickHouseRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 5, windows((0, "a", 1))))
    for clicks in (2, 1, 2):
        sink.write(1, span(5, 5, windows((0, "a", clicks))))
    assert stored(sink) == [(0, "a", 2, 0, "", 0)]


def test_a_writer_that_slept_cannot_move_the_position(rig: ClickHouseRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 5, windows((0, "a", 5))))
    sink.write(1, span(5, 20, windows((0, "a", 20))))
    with pytest.raises(FenceRefused):
        slept(rig, at(5), at(20)).write(1, span(5, 10, windows((0, "a", 10))))
    assert stored(sink) == [(0, "a", 20, 0, "", 0)], "an older row came after and won"
    with pytest.raises(FenceRefused):
        slept(rig, at(5), at(20)).write(1, span(5, 30, windows((0, "a", 30))))
    assert sink.load(1, TOPIC, 0) == at(20)
    sink.write(1, span(20, 25, windows((0, "a", 25))))
    sink.write(1, span(25, 31, windows((0, "a", 31))))
    assert stored(sink) == [(0, "a", 31, 0, "", 0)]


def test_the_seal_holds_against_a_writer_that_looked_before_it(rig: ClickHouseRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 5, windows((0, "a", 5))))
    sink.seal(1)
    with pytest.raises(FenceRefused):
        slept(rig, at(5)).write(1, span(5, 6, windows((0, "a", 6))))
    assert sink.positions(1) == {(TOPIC, 0): at(5)}
    assert stored(sink) == [(0, "a", 5, 0, "", 0)]


def test_views_show_the_live_version(rig: ClickHouseRig) -> None:
    sink = rig.sink()
    sink.write(1, span(None, 5, windows((0, "a", 1), (0, "b", 1))))
    sink.write(1, span(5, 6, windows((0, "a", 2)), no_windows((0, "b"))))
    sql = f"SELECT campaign, clicks FROM {ddl.view(rig.model.name, 'windows')}"
    assert rig.client.query(sql).result_rows == [("a", 2)]
    sink.prepare(2)
    sink.write(2, span(None, 6, windows((0, "a", 3))))
    assert rig.client.query(sql).result_rows == [("a", 2)]
    sink.switch(2)
    assert rig.client.query(sql).result_rows == [("a", 3)]


def test_drop_finds_tables_of_older_code(rig: ClickHouseRig) -> None:
    extra = Table("extra", WINDOWS.key, {})
    older = ClickHouseSink(ReadModel(rig.model.name, (*rig.model.tables, extra)), rig.client)
    older.prepare(2)
    rig.sink().drop(2)
    assert [name for name in rig._tables() if name.endswith("_v2")] == []


def test_models_it_cannot_hold_are_refused() -> None:
    for tables, words in (
        ((SCORES,), "no rankings"),
        ((Table("positions", WINDOWS.key, {}),), "table of the driver"),
        ((Table("a b", WINDOWS.key, {}),), "no name"),
    ):
        with pytest.raises(TypeError, match=words):
            ClickHouseSink(ReadModel(read_model(rankings=False).name, tables), None)
