"""Digests: equal for equal rows in any store, order and cut; differences name the rows."""

from __future__ import annotations

import pytest

from sinks.digest import Difference, differences, digest, summary
from streams.runtime.sink import Sink
from tests.drivers.model import at, events, no_windows, ranked, span, windows
from tests.drivers.rigs import MemoryRig, Rig
from tests.drivers.writer import Click, Writer

LOG = [Click((i % 3, f"c,é{i % 5}"), gone=i % 7 == 6) for i in range(60)]


def filled(sink: Sink, rows: int) -> Sink:
    sink.prepare(1)
    Writer(sink, LOG).drain(rows)
    Writer(sink, LOG[:20], partition=3).drain(rows)
    return sink


def test_every_store_and_cut_gives_the_same_digest(rig: Rig) -> None:
    memory = MemoryRig(rankings=False)
    found = digest(filled(rig.sink(), 9), 1)
    assert found == digest(filled(memory.sink(), 60), 1)
    assert found["events"].rows == 80
    assert found["windows"].rows > 10
    assert summary(found) == summary(dict(reversed(found.items())))


def test_digests_are_stable() -> None:
    """A digest printed by one release can be compared with the next one's."""
    sink = filled(MemoryRig(rankings=False).sink(), 9)
    assert summary(digest(sink, 1)) == "571e5145d1d041b721917c4f0364bc95"


def test_rankings_are_part_of_it(ranking_rig: Rig) -> None:
    sink = ranking_rig.sink()
    empty = digest(sink, 1)["scores"]
    sink.write(1, span(None, 1, ranked((0, "go", "ann", 1, 1), (0, "go", 'b"', 2, 1))))
    one = digest(sink, 1)["scores"]
    assert (empty.rows, one.rows) == (0, 2)
    sink.write(1, span(1, 2, ranked((0, "go", "ann", 0, 2))))
    assert digest(sink, 1)["scores"].digest not in (empty.digest, one.digest)
    memory = MemoryRig().sink()
    memory.write(1, span(None, 1, ranked((0, "go", "ann", 1, 2), (0, "go", 'b"', 2, 1))))
    assert digest(sink, 1)["scores"] == digest(memory, 1)["scores"]


@pytest.mark.parametrize("limit", [10, 2])
def test_differences_are_named(rig: Rig, limit: int) -> None:
    sink = rig.sink()
    for version in (1, 2):
        sink.prepare(version)
        sink.write(version, span(None, 3, windows((0, "a", 1), (0, "b", 1)), events(1)))
    assert differences(sink, 1, 2) == []
    assert digest(sink, 1) == digest(sink, 2)
    sink.write(2, span(3, 4, windows((0, "b", 2), (1, "c", 1)), no_windows((0, "a"))))
    assert digest(sink, 1) != digest(sink, 2)
    assert (
        differences(sink, 1, 2, limit)
        == [
            Difference("windows", 0, '0,"a"', '1,0,""', None),
            Difference("windows", 0, '0,"b"', '1,0,""', '2,0,""'),
            Difference("windows", 0, '1,"c"', None, '1,0,""'),
        ][:limit]
    )
    assert sink.positions(2).popitem()[1] == at(4)
