"""What a rebuild reads, over both feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from streams.runtime.lane.span import Seat
from streams.runtime.native.feed import opened
from streams.runtime.rebuild.source import Source
from tests.runtime.cluster import CHOICES, TOPIC, Cluster, numbered, until

ROWS_MAX = 300


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class Read:
    """A source and what it has handed out: offsets by partition."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offsets: dict[int, list[int]] = {}
        self.longest = 0

    def until(self, *reached: tuple[int, int]) -> None:
        """Take spans until these partitions have come to these offsets."""
        until(lambda: self.take() or all(self.next(p) == offset for p, offset in reached))

    def take(self) -> None:
        """Take what there is."""
        while span := self.source.next(0.3):
            found = self.offsets.setdefault(span.seat.partition, [])
            assert span.begins == (found[-1] + 1 if found else span.first_offset)
            found += span.offsets().tolist()
            self.longest = max(self.longest, len(span))

    def next(self, partition: int) -> int:
        return self.offsets.get(partition, [-1])[-1] + 1


Make = Callable[[Mapping[int, int], Mapping[int, int]], Read]


@pytest.fixture(params=CHOICES)
def reads(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Make]:
    made: list[Source] = []

    def make(starts: Mapping[int, int], targets: Mapping[int, int]) -> Read:
        seats = {Seat(TOPIC, partition): at for partition, at in starts.items()}
        reading = opened(cluster.kafka, "rebuild", TOPIC, request.param)
        made.append(Source(reading, seats, targets, ROWS_MAX))
        made[-1].start()
        return Read(made[-1])

    yield make
    for source in made:
        source.stop()


def test_up_to_the_target_and_no_further(cluster: Cluster, reads: Make) -> None:
    cluster.put(0, *numbered(0, 2_000))
    cluster.put(1, *numbered(0, 50))
    read = reads({0: 0, 1: 10}, {0: 1_234, 1: 50})
    read.until((0, 1_234), (1, 50))
    read.take()
    assert read.offsets == {0: list(range(1_234)), 1: list(range(10, 50))}
    assert read.longest <= ROWS_MAX


def test_a_target_moves_on(cluster: Cluster, reads: Make) -> None:
    cluster.put(0, *numbered(0, 900))
    read = reads({0: 0}, {0: 100})
    read.until((0, 100))
    read.take()
    assert read.next(0) == 100
    read.source.aim({0: 900})
    read.until((0, 900))
    cluster.put(0, *numbered(900, 1_000))
    read.source.aim({0: 1_000})
    read.until((0, 1_000))
    assert read.offsets[0] == list(range(1_000))


def test_no_target_no_rows(cluster: Cluster, reads: Make) -> None:
    cluster.put(0, *numbered(0, 100))
    read = reads({0: 0}, {})
    read.take()
    assert read.offsets == {}
