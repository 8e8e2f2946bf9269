"""A read model of what a real decider wrote, through a kill: each command's event once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime import kafka
from streams.runtime.avro import Decoder
from streams.runtime.metrics import Metrics
from streams.runtime.native.feed import opened
from streams.runtime.position import applied
from streams.runtime.projection import Projection
from streams.runtime.rebuild import Rebuild
from streams.runtime.sink import ReadModel
from tests.runtime.decider.bank import Deposit
from tests.runtime.decider.rig import Rig
from tests.runtime.lane.bed import Letterbox
from tests.runtime.lane.ruled import SEEN, See

pytestmark = pytest.mark.stack


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    try:
        yield made
    finally:
        made.close()


def fold(rig: Rig) -> MemorySink:
    """The events, folded as rebuild folds them, which is as the lane does."""
    model = ReadModel(f"{rig.prefix}-seen", (SEEN,))
    sink = MemorySink(model, MemoryStore())
    admin = kafka.admin(rig.settings.kafka)
    events = rig.decider.events
    Rebuild(
        Projection(model.name, events, See(), model, "memory"),
        sink,
        Decoder(events, rig.schemas),
        Letterbox(),
        Metrics(CollectorRegistry()).agent(model.name, system="t", topic="t", store="memory"),
        opened(rig.settings.kafka, model.name, events.name),
        bounds=lambda seat: kafka.log_bounds(admin, seat.topic, seat.partition),
    ).run()
    return sink


def test_a_read_model_of_events_has_each_command_once(rig: Rig) -> None:
    first = rig.start()
    first.await_ready()
    asked = rig.send([Deposit("a", 1), Deposit("b", -1)] * 300)
    rig.await_answers(asked[:1])
    first.kill()  # in the midst of them
    rig.start(slot=1).await_ready()
    rig.await_answers(asked)
    sink = fold(rig)
    positions = sink.positions(sink.live_version())
    (position,) = positions.values()
    assert position.counts["applied"] == len(asked)
    assert position.counts["control"] >= 2  # both have claimed
    assert set(position.counts) <= {"applied", "control", "stale"}
    (frame,) = sink.rows(sink.live_version(), "seen")
    assert set(frame["kind"]) == {"Deposited", "CommandRejected"}
    found = applied(positions, rig.decider.events)
    assert found[rig.decider.commands.name, 0] == len(asked)
