"""A ring of three: one node killed in the middle of writing, then a quorum lost and found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from sinks.drivers import cassandra
from sinks.drivers.cassandra import CassandraSink
from streams.runtime.sink import SinkUnavailable
from tests.drivers.model import TOPIC, at, read_model, stored
from tests.drivers.ring import Ring
from tests.drivers.valkey_cluster import free_ports
from tests.drivers.writer import Click, Writer, clean

LOG = [Click((i % 7, f"c{i % 31}"), gone=i % 11 == 10) for i in range(1_500)]
PATIENCE_S = 120.0
Answer = TypeVar("Answer")


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    ring = Ring(tmp_path / "ring", *free_ports(2))
    try:
        ring.start(0, 1, 2)
        yield ring
    finally:
        ring.stop()


@pytest.fixture
def sink(ring: Ring) -> Iterator[CassandraSink]:
    store = cassandra.connect(ring.settings, 20)
    with closing(CassandraSink(read_model(rankings=False), store)) as sink:
        yield sink


def patient(call: Callable[[], Answer]) -> Answer:
    """The answer, as soon as there is one."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except SinkUnavailable:
            assert time.monotonic() < until_s, "the ring does not come back"
            time.sleep(0.2)


def drained(writer: Writer, end: int, rows: int = 25) -> None:
    """Write up to the offset, and wait out what fails."""
    while writer.next < end:
        try:
            writer.send(writer.prepared(min(rows, end - writer.next)))
        except SinkUnavailable:
            patient(writer.load)


def right(sink: CassandraSink, end: int) -> None:
    """Every row is there, once, as the first `end` events make it."""
    assert patient(lambda: sink.load(1, TOPIC, 0)) == at(end)
    assert patient(lambda: sink.positions(1)) == {(TOPIC, 0): at(end)}
    assert patient(lambda: stored(sink)) == clean(LOG, end)
    found = patient(lambda: stored(sink, "events"))
    assert sorted(row[0] for row in found) == list(range(end))


@pytest.mark.stack
@pytest.mark.slow
def test_nodes_die_and_come_back(ring: Ring, sink: CassandraSink) -> None:
    patient(lambda: sink.prepare(1))
    writer = Writer(sink, LOG)
    writing = threading.Thread(target=drained, args=(writer, 1_000))
    writing.start()
    while writer.next < 250:
        time.sleep(0.01)
    ring.kill(1)
    killed_at = writer.next
    writing.join()
    assert killed_at < 1_000, "it was killed too late to matter"
    right(sink, 1_000)

    ring.start(1)
    ring.kill(2)  # the node that missed half of it now makes the quorum
    drained(writer, 1_050)
    right(sink, 1_050)

    ring.kill(0)
    with pytest.raises(SinkUnavailable):
        sink.write(1, writer.prepared(25))
    with pytest.raises(SinkUnavailable):
        sink.load(1, TOPIC, 0)
    recovering = threading.Thread(target=drained, args=(writer, 1_500))
    recovering.start()
    ring.start(2)
    recovering.join()
    right(sink, 1_500)
