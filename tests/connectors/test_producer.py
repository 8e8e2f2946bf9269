"""The asyncio producer over a client that does what a test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from connectors.encode import EncodeError, Encoder
from connectors.producer import LogProducer, RecordMetadata, Saturated, Undelivered
from schemas.ads import events
from tests.connectors.test_encode import CLICK

TOPIC = events.EVENTS.name
ENCODERS = {TOPIC: Encoder(events.EVENTS, {r.fullname: 1 for r in events.EVENTS.records})}
ROW = ("AdClicked", CLICK)


class Message:
    def __init__(self, topic: str, offset: int) -> None:
        self._topic, self._offset = topic, offset

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class FakeClient:
    """librdkafka's queue and reports: `produce` queues, `poll` reports when `open`."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.queue: list[tuple[int, Callable[[Any, Any], None]]] = []
        self.produced = 0
        self.deliver = threading.Event()
        self.fail_offsets: set[int] = set()
        self.refuses_with: Exception | None = None
        self.lock = threading.Lock()

    def produce(
        self, topic: str, *, key: bytes, value: bytes, headers: Any, on_delivery: Any
    ) -> None:
        with self.lock:
            if self.refuses_with is not None:
                raise self.refuses_with
            if len(self.queue) >= self.room:
                raise BufferError("Local: Queue full")
            self.queue.append((self.produced, on_delivery))
            self.produced += 1

    def poll(self, timeout: float) -> int:
        if not self.deliver.wait(min(timeout, 0.002)):
            return 0
        with self.lock:
            batch, self.queue = self.queue, []
        for offset, report in batch:
            failed = offset in self.fail_offsets
            report("broker: timed out" if failed else None, Message(TOPIC, offset))
        return len(batch)

    def purge(self) -> None:
        with self.lock:
            batch, self.queue = self.queue, []
        for offset, report in batch:
            report("purged", Message(TOPIC, offset))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - the fake client knows no event loop
        await asyncio.sleep(0)


async def test_places_come_in_the_order_of_the_rows() -> None:
    client = FakeClient()
    client.deliver.set()
    async with LogProducer(client, ENCODERS) as producer:
        sent = await producer.send_many(TOPIC, [ROW] * 5)
        assert sent == [RecordMetadata(TOPIC, 0, offset) for offset in range(5)]
        assert await producer.send(TOPIC, *ROW) == RecordMetadata(TOPIC, 0, 5)
        assert await producer.send_many(TOPIC, []) == []
        assert producer.in_flight == 0


async def test_nothing_returns_before_it_is_delivered() -> None:
    client = FakeClient()
    async with LogProducer(client, ENCODERS) as producer:
        task = asyncio.create_task(producer.send(TOPIC, *ROW))
        await until(lambda: client.produced > 0)
        assert not task.done()
        client.deliver.set()
        assert (await task).offset == 0


async def test_one_bad_row_and_nothing_is_queued() -> None:
    client = FakeClient()
    client.deliver.set()
    async with LogProducer(client, ENCODERS) as producer:
        with pytest.raises(EncodeError):
            await producer.send_many(TOPIC, [ROW, ("AdClicked", {**CLICK, "ad_id": 5})])
        assert (client.produced, producer.in_flight) == (0, 0)


async def test_one_undelivered_record_and_the_call_fails() -> None:
    client = FakeClient()
    client.fail_offsets = {3}
    client.deliver.set()
    async with LogProducer(client, ENCODERS) as producer:
        with pytest.raises(Undelivered, match="timed out"):
            await producer.send_many(TOPIC, [ROW] * 5)
        assert producer.in_flight == 0
        assert await producer.send(TOPIC, *ROW) == RecordMetadata(TOPIC, 0, 5)


async def test_past_the_bound_nothing_of_a_call_is_queued() -> None:
    client = FakeClient()
    async with LogProducer(client, ENCODERS, in_flight_max=10) as producer:
        first = asyncio.create_task(producer.send_many(TOPIC, [ROW] * 8))
        await until(lambda: client.produced >= 8)
        with pytest.raises(Saturated) as refused:
            await producer.send_many(TOPIC, [ROW] * 3)
        assert refused.value.retry_after_s >= 1
        assert (client.produced, producer.in_flight) == (8, 8)
        client.deliver.set()
        assert len(await first) == 8
        assert len(await producer.send_many(TOPIC, [ROW] * 10)) == 10


async def test_a_full_queue_is_waited_for_in_order() -> None:
    client = FakeClient(room=2)
    client.deliver.set()
    async with LogProducer(client, ENCODERS) as producer:
        sent = await producer.send_many(TOPIC, [ROW] * 20)

    assert [place.offset for place in sent] == list(range(20))


async def test_a_queue_that_stays_full_is_saturation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.producer.QUEUE_WAIT_MS_MAX", 20)
    client = FakeClient(room=0)
    async with LogProducer(client, ENCODERS) as producer:
        with pytest.raises(Saturated):
            await producer.send_many(TOPIC, [ROW] * 3)
        assert producer.in_flight == 0


async def test_a_queue_that_fills_half_way_leaves_the_call_undelivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("connectors.producer.QUEUE_WAIT_MS_MAX", 20)
    client = FakeClient(room=2)
    async with LogProducer(client, ENCODERS) as producer:
        task = asyncio.create_task(producer.send_many(TOPIC, [ROW] * 3))
        await until(lambda: producer.in_flight == 2)  # three reserved, one given back
        client.deliver.set()
        with pytest.raises(Undelivered, match="not queued"):
            await task
        assert producer.in_flight == 0


async def test_what_librdkafka_refuses_is_undelivered() -> None:
    client = FakeClient()
    client.refuses_with = KafkaException("message too large")
    async with LogProducer(client, ENCODERS) as producer:
        with pytest.raises(Undelivered, match="too large"):
            await producer.send(TOPIC, *ROW)
        assert producer.in_flight == 0


async def test_a_caller_that_goes_away_frees_its_places() -> None:
    client = FakeClient()
    async with LogProducer(client, ENCODERS) as producer:
        task = asyncio.create_task(producer.send_many(TOPIC, [ROW] * 5))
        await until(lambda: client.produced >= 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert producer.in_flight == 5  # they are still on their way
        client.deliver.set()
        await until(lambda: producer.in_flight == 0)


async def test_closing_waits_for_what_is_in_flight() -> None:
    client = FakeClient()
    async with LogProducer(client, ENCODERS) as producer:
        task = asyncio.create_task(producer.send_many(TOPIC, [ROW] * 5))
        await until(lambda: client.produced >= 5)
        client.deliver.set()

    assert len(await task) == 5


async def test_closing_says_when_not_all_was_delivered() -> None:
    client = FakeClient()
    producer = await LogProducer(client, ENCODERS).__aenter__()
    task = asyncio.create_task(producer.send_many(TOPIC, [ROW] * 5))
    await until(lambda: client.produced >= 5)

    with pytest.raises(Undelivered, match="5 records were not confirmed"):
        await producer.close(timeout_s=0.01)
    with pytest.raises(Undelivered):
        await task
    with pytest.raises(RuntimeError, match="closed"):
        await producer.send(TOPIC, *ROW)
