"""The faults that a test can ask a memory store for."""

from __future__ import annotations

import pytest

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.sink import SinkUnavailable
from tests.drivers.model import TOPIC, at, events, read_model, span, stored, windows


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def sink(store: MemoryStore) -> MemorySink:
    return MemorySink(read_model(rankings=False), store)


def test_refused_calls_do_nothing(store: MemoryStore, sink: MemorySink) -> None:
    store.refuse(2)
    with pytest.raises(SinkUnavailable):
        sink.write(1, span(None, 1))
    with pytest.raises(SinkUnavailable):
        sink.live_version()
    assert sink.load(1, TOPIC, 0) is None


def test_a_lost_reply_was_applied(store: MemoryStore, sink: MemorySink) -> None:
    store.lose_replies(1)
    with pytest.raises(SinkUnavailable):
        sink.write(1, span(None, 1, events(0)))
    assert sink.load(1, TOPIC, 0) == at(1)
    assert len(stored(sink, "events")) == 1


@pytest.mark.parametrize("changes", [0, 1, 2])
def test_a_write_that_breaks_half_way_is_undone(
    store: MemoryStore, sink: MemorySink, changes: int
) -> None:
    store.fail_after(changes)
    with pytest.raises(SinkUnavailable):
        sink.write(1, span(None, 1, windows((0, "a", 1)), events(0)))
    assert stored(sink) == stored(sink, "events") == []
    sink.write(1, span(None, 1, windows((0, "a", 1)), events(0)))


def test_an_older_state_comes_back_whole(store: MemoryStore, sink: MemorySink) -> None:
    sink.write(1, span(None, 1, windows((0, "a", 1))))
    older = store.snapshot()
    sink.write(1, span(1, 2, windows((0, "a", 2))))
    for _ in range(2):
        store.restore(older)
        assert sink.load(1, TOPIC, 0) == at(1)
        assert stored(sink) == [(0, "a", 1, 0, "", 0)]
        sink.write(1, span(1, 2, windows((0, "a", 2))))
