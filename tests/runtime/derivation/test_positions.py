"""Where a derivation goes on, by what the group coordinator says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streams.runtime.derivation import positions
from streams.runtime.derivation.positions import GroupPositions, to_metadata
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.position import Position
from tests.runtime.derivation.scene import DERIVATION, SOURCE, TARGET


@dataclass
class Coordinator:
    """An admin client that knows offsets by source partition."""

    offsets: dict[int, tuple[int, str]] = field(default_factory=dict)

    def list_consumer_group_offsets(self, asked: list[Any], request_timeout: float) -> Any:
        (group,) = asked
        found = [
            TopicPartition(one.topic, one.partition, *self.offsets.get(one.partition, (-1001, "")))
            for one in group.topic_partitions
        ]
        answer = type("Answer", (), {"topic_partitions": found})()
        future = type("Future", (), {"result": lambda self, timeout: answer})()
        return {group.group_id: future}


@dataclass
class World:
    coordinator: Coordinator = field(default_factory=Coordinator)
    starts: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    partitions: dict[str, int] = field(default_factory=dict)

    def bounds(self, _: Any, topic: str, partition: int, __: float) -> LogBounds:
        declared = {SOURCE.name: SOURCE.partitions, TARGET.name: TARGET.partitions}
        count = self.partitions.get(topic, declared.get(topic, 1))
        return LogBounds("id-1", self.starts.get(topic, 0), self.ends.get(topic, 0), count)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(positions.kafka, "log_bounds", made.bounds)
    return made


def of(world: World, **changed: Any) -> GroupPositions:
    return GroupPositions(replace(DERIVATION, **changed), world.coordinator)  # type: ignore[arg-type]


AT_7 = Position("id-1", 7, 7)


def test_it_goes_on_where_the_group_stands(world: World) -> None:
    world.coordinator.offsets[1] = (7, to_metadata(AT_7, 1))
    assert of(world).load(1) == AT_7
    assert of(world).load(0) is None


def test_an_offset_that_something_else_set_is_no_position(world: World) -> None:
    world.coordinator.offsets[0] = (7, "")
    with pytest.raises(LogMismatch, match="something else"):
        of(world).load(0)


def test_another_version_needs_another_topic(world: World) -> None:
    world.coordinator.offsets[0] = (7, to_metadata(AT_7, 1))
    with pytest.raises(LogMismatch, match="version 1, this is 2"):
        of(world, version=2).load(0)


@pytest.mark.parametrize(
    ("start", "end", "elsewhere", "stops"),
    [
        (0, 9, False, False),  # expired: all of it is derived again
        (5, 0, False, False),  # new
        (5, 9, True, False),  # new on this partition
        (5, 9, False, True),  # expired, and what was between is gone
    ],
)
def test_without_a_position_nothing_may_be_missing(
    world: World, start: int, end: int, elsewhere: bool, stops: bool
) -> None:
    world.starts, world.ends = {SOURCE.name: start}, {TARGET.name: end}
    if elsewhere:
        world.coordinator.offsets[1] = (7, to_metadata(AT_7, 1))
    if stops:
        with pytest.raises(LogMismatch, match="new topic"):
            of(world).load(0)
    else:
        assert of(world).load(0) is None


def test_the_target_has_the_declared_partitions(world: World) -> None:
    world.partitions[TARGET.name] = 4
    with pytest.raises(LogMismatch, match="4 partitions"):
        of(world).check()


@pytest.mark.parametrize(("sources", "fits"), [(40, True), (64, False)])
def test_the_position_must_fit_beside_the_offset(world: World, sources: int, fits: bool) -> None:
    world.partitions["test.origin"] = sources
    derived = replace(SOURCE, derived_from=("test.origin",))
    one = of(world, source=derived)
    if fits:
        one.check()
    else:
        with pytest.raises(LogMismatch, match="4096"):
            one.check()
