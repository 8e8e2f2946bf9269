"""Versions of a read model: built side by side, sealed, switched, dropped; and retention."""

from __future__ import annotations

import pytest

from streams.runtime.sink import FenceRefused
from tests.drivers.model import TOPIC, at, events, span, stored, windows
from tests.drivers.rigs import Rig


def test_versions_live_side_by_side(rig: Rig) -> None:
    sink = rig.sink()
    assert sink.live_version() == 1
    for version in (1, 2):
        sink.prepare(version)
        sink.prepare(version)
        sink.write(version, span(None, version, windows((0, "a", version))))
    assert sink.versions() == [1, 2]
    assert stored(sink, version=1) == [(0, "a", 1, 0, "", 0)]
    assert stored(sink, version=2) == [(0, "a", 2, 0, "", 0)]
    sink.switch(2)
    assert rig.sink().live_version() == 2
    sink.drop(1)
    assert sink.versions() == [2]
    assert sink.positions(1) == {}
    assert sink.positions(2) == {(TOPIC, 0): at(2)}
    assert stored(sink, version=2) == [(0, "a", 2, 0, "", 0)]


def test_the_live_version_is_not_dropped(rig: Rig) -> None:
    sink = rig.sink()
    sink.prepare(1)
    sink.write(1, span(None, 1, windows((0, "a", 1))))
    with pytest.raises(ValueError, match="live"):
        sink.drop(1)
    assert len(stored(sink)) == 1


def test_a_sealed_version_refuses_every_writer(rig: Rig) -> None:
    sink, other = rig.sink(), rig.sink()
    sink.prepare(1)
    sink.write(1, span(None, 5, windows((0, "a", 1))))
    other.write(1, span(None, 3, partition=2))
    assert rig.sink().seal(1) == {(TOPIC, 0): at(5), (TOPIC, 2): at(3)}
    for writer in (sink, other, rig.sink()):
        with pytest.raises(FenceRefused):
            writer.write(1, span(5, 6, windows((0, "a", 2))))
        with pytest.raises(FenceRefused):
            writer.write(1, span(5, 5, windows((0, "a", 2))))
        with pytest.raises(FenceRefused):
            writer.write(1, span(None, 6, windows((0, "a", 2)), partition=7))
        with pytest.raises(FenceRefused):
            writer.load(1, TOPIC, 0)
        with pytest.raises(FenceRefused):
            writer.load(1, TOPIC, 9)
    assert stored(sink) == [(0, "a", 1, 0, "", 0)]
    assert sink.positions(1) == {(TOPIC, 0): at(5), (TOPIC, 2): at(3)}
    sink.unseal(1)
    assert other.load(1, TOPIC, 0) == at(5)
    other.write(1, span(5, 6, windows((0, "a", 2))))
    other.write(1, span(None, 6, windows((0, "a", 2)), partition=7))
    assert stored(sink) == [(0, "a", 2, 0, "", 0), (0, "a", 2, 0, "", 7)]


def test_a_sealed_version_can_be_dropped_and_built_again(rig: Rig) -> None:
    sink = rig.sink()
    for clicks in (1, 2):
        sink.prepare(2)
        sink.write(2, span(None, 5, windows((0, "a", clicks)), events(1, 2)))
        assert stored(sink, version=2) == [(0, "a", clicks, 0, "", 0)]
        sink.seal(2)
        sink.drop(2)
        assert sink.versions() == []
        assert stored(rig.sink(), version=2) == []
        assert sink.load(2, TOPIC, 0) is None


def test_rows_before_the_cutoff_go(rig: Rig) -> None:
    sink = rig.sink()
    sink.prepare(1)
    sink.write(1, span(None, 1, *(windows((t, "a", 1), (t, "b", 2)) for t in range(10))))
    sink.write(1, span(None, 1, windows((0, "a", 1)), partition=1))
    sink.write(1, span(1, 2, windows((2, "c", 1), (20, "a", 1)), expire={"windows": 7}))
    assert sorted({row[0] for row in stored(sink, partition=0)}) == [7, 8, 9, 20]
    assert stored(sink, partition=1) == [(0, "a", 1, 0, "", 1)]
    sink.write(1, span(2, 3, expire={"windows": 7}))
    assert len(stored(sink, partition=0)) == 7
