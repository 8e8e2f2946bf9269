"""A reactor as a Faust service: reader thread → Faust channel → agent → engine → the log."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import faust
import structlog
from confluent_kafka import KafkaException, Message, TopicPartition

from streams.runtime import kafka
from streams.runtime.avro import Decoder, SchemaSource
from streams.runtime.decider.codec import Codec, with_control_records
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.lane.patience import Patience, Stopped
from streams.runtime.lane.service import LaneApp
from streams.runtime.lane.span import Seat, Span
from streams.runtime.metrics import Metrics
from streams.runtime.position import FilterState
from streams.runtime.reactor.core import Core, due_at
from streams.runtime.reactor.engine import Encode, Engine, Ledger
from streams.runtime.reactor.metrics import ReactorMetrics
from streams.runtime.reactor.offsets import BadMetadata, Commit, Offsets
from streams.runtime.reactor.outlet import KafkaOutlet
from streams.runtime.reactor.reader import ASSIGNOR, Reader
from streams.runtime.reactor.records import Records
from streams.runtime.reactor.rules import Reactor
from streams.runtime.reactor.wire import Journey
from streams.runtime.settings import Settings

BROKER_TIMEOUT_S = 10.0
COMMIT_S = 0.1
LEAVE_S = 3.0
"""How long a revoke waits for running calls; who takes over repeats what takes longer."""
DRAIN_S = 10.0
"""The same for a stop."""
STUCK_AFTER_S = 120.0
CONSUMER = {**ASSIGNOR, "queued.min.messages": 1_000, "queued.max.messages.kbytes": 16_384}

log = structlog.get_logger()


@dataclass(frozen=True)
class ReactorWiring:
    """What a reactor needs of its worker. `outcome_ids` has the schema id of each record of its
    outcomes topic, by full name.
    """

    system: str
    settings: Settings
    schemas: SchemaSource
    outcome_ids: Mapping[str, int]
    metrics: Metrics


class Reacting(faust.Service):  # type: ignore[misc]
    """Runs one reactor in a Faust app."""

    def __init__(self, app: LaneApp, reactor: Reactor, wiring: ReactorWiring) -> None:
        super().__init__(loop=app.loop)
        self.reactor, self.name = reactor, reactor.name
        self.failure: BaseException | None = None
        self._app, self._wiring = app, wiring
        self._kafka = wiring.settings.kafka
        self._delays = {reactor.retry_topic(delay): delay for delay in reactor.retry.levels}
        self._stopping = threading.Event()
        # A full queue may let a later span pass one that waits: the reader bounds what is out.
        self._channel = app.channel(maxsize=0)
        self._admin = kafka.shared_admin(self._kafka)
        self._reports = ReactorMetrics(wiring.metrics, reactor, wiring.system)
        self.metrics = self._reports.agents[reactor.topic.name]
        self._patience = Patience(reactor.name, self.metrics, self._stopping)
        self._seats: set[Seat] = set()
        self._resources = AsyncExitStack()
        self._reader = Reader(
            kafka.consumer(self._kafka, reactor.name, **CONSUMER),
            reactor.topic.name,
            list(self._delays),
            locate=self._locate,
            due_ms=self._due_ms,
            hand=self._hand,
            leave=self._leave,
            drop=self._drop,
            failed=self._failed,
            ends=self._ends,
        )
        app.agent(self._channel, name=reactor.name)(self._agent())

    @property
    def ready(self) -> bool:
        """Whether the group has given this reactor its partitions (possibly none)."""
        return self._reader.joined and not self.stuck

    @property
    def stuck(self) -> bool:
        """Whether the reader's thread has died or has not turned for long."""
        alive_s = max(self._reader.polled_s, self._patience.tried_s)
        return self.failure is not None or time.monotonic() - alive_s > STUCK_AFTER_S

    def _agent(self) -> Callable[[Any], Any]:
        async def react(spans: Any) -> None:
            async for span in spans:
                try:
                    await self._engine.take(span)
                except Stopped:
                    pass
                except Exception as error:
                    self._failed(error)
                finally:
                    self._reader.taken(len(span))

        return react

    async def on_start(self) -> None:
        self._running = asyncio.get_running_loop()
        handler = await self._resources.enter_async_context(
            self.reactor.open(self._wiring.settings)
        )
        outlet = KafkaOutlet(lambda: kafka.producer(self._kafka, **{"linger.ms": 1}))
        self._resources.push_async_callback(asyncio.to_thread, outlet.close)
        topic = self.reactor.topic
        if topic.decides is not None:
            topic = with_control_records(topic)
        decoder = Decoder(topic, self._wiring.schemas)
        self._engine = Engine(
            self.reactor,
            handler,
            Records(topic, decoder, self._patience),
            outlet,
            encoder(self.reactor, self._wiring),
            Core(self.reactor, lambda: random.uniform(-1, 1)),  # noqa: S311 -- spread, not secrecy
            self._reports,
            now_ms=lambda: time.time_ns() // 1_000_000,
            failed=self._failed,
        )
        self._app.flow_control.resume()  # Faust's consumer would do this; it is off

    @faust.Service.task  # type: ignore[untyped-decorator]
    async def _begin(self) -> None:
        """Start reading once the agent listens: a channel without listeners drops silently."""
        try:
            for topic in (self.reactor.topic.name, *self._delays):
                await asyncio.to_thread(kafka.topic_id, self._admin, topic, BROKER_TIMEOUT_S)
        except (KafkaException, kafka.UnknownTopic) as error:
            self._fail(error)
            return
        while not self._channel.subscriber_count:
            await self.sleep(0.01)
        self._reader.start()

    @faust.Service.task  # type: ignore[untyped-decorator]
    async def _commit_often(self) -> None:
        while not self.should_stop:
            await self.sleep(COMMIT_S)
            for seat in list(self._seats):
                self._commit(seat)

    async def on_stop(self) -> None:
        """Wait for running calls, up to a bound; leave the others uncommitted; leave the group."""
        self._stopping.set()
        seats = list(self._seats)
        if hasattr(self, "_engine"):
            await self._engine.leave(seats, DRAIN_S)
        for seat in seats:
            self._commit(seat)
        self._reader.stop()
        if self._reader.is_alive():
            await asyncio.to_thread(self._reader.join, BROKER_TIMEOUT_S)
        await self._resources.aclose()

    def _commit(self, seat: Seat) -> None:
        ledger: Ledger = seat.memory
        commit = Commit.of(ledger.offsets, ledger.topic_id)
        if commit != ledger.committed:
            ledger.committed = commit
            self._reader.commit(seat, commit.offset, commit.metadata())
            lag = self._reports.agents[seat.topic]
            lag.progress(seat.partition, commit.offset, watermark_ms=0)

    # -- called from the reader's thread --------------------------------------------------------

    def _hand(self, span: Span) -> None:
        asyncio.run_coroutine_threadsafe(self._channel.put(span), self._running)

    def _due_ms(self, message: Message) -> int:
        journey = Journey.of(message, retried=True)
        delay_ms = self._delays[message.topic()]
        return due_at(journey, message.timestamp()[1], delay_ms, self.reactor.retry.jitter)

    def _locate(self, seat: Seat, committed: TopicPartition) -> int:
        def bounds() -> LogBounds:
            return kafka.log_bounds(self._admin, seat.topic, seat.partition, BROKER_TIMEOUT_S)

        found = self._patience(seat, bounds)
        commit = start_of(self.reactor, seat, committed, found)
        offsets = Offsets(commit.offset, commit.done, commit.filter)
        seat.memory = Ledger(offsets, found.topic_id)
        self._running.call_soon_threadsafe(self._seats.add, seat)
        lag = self._reports.agents[seat.topic]
        lag.assigned([seat.partition])
        lag.progress(seat.partition, commit.offset, watermark_ms=0)
        return commit.offset

    def _leave(self, seats: list[Seat]) -> None:
        """Let what runs for these seats end, and commit it."""

        async def leave() -> None:
            await self._engine.leave(seats, LEAVE_S)
            for seat in seats:
                self._commit(seat)
                self._seats.discard(seat)

        self._forget(seats)
        if not self._stopping.is_set():
            asyncio.run_coroutine_threadsafe(leave(), self._running).result()

    def _drop(self, seats: list[Seat]) -> None:
        async def drop() -> None:
            await self._engine.leave(seats, 0)
            self._seats.difference_update(seats)

        self._forget(seats)
        asyncio.run_coroutine_threadsafe(drop(), self._running)

    def _forget(self, seats: list[Seat]) -> None:
        for seat in seats:
            self._reports.agents[seat.topic].revoked([seat.partition])

    def _ends(self, topic: str, partition: int, offset: int) -> None:
        self._reports.agents[topic].log_end(partition, offset)

    def _failed(self, error: BaseException) -> None:
        if not (self._stopping.is_set() or isinstance(error, Stopped)):
            self._running.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        """An error that nobody expected ends the worker; its supervisor starts another."""
        if self.failure is None and not self._stopping.is_set():
            self.failure = error
            log.error("reactor failed", reactor=self.reactor.name, exc_info=error)
            self._app.end(error)


def start_of(reactor: Reactor, seat: Seat, committed: TopicPartition, bounds: LogBounds) -> Commit:
    """Where a partition is read from. Raises `LogMismatch` where a person must decide."""
    source = seat.topic == reactor.topic.name
    decided = reactor.topic.decides is not None and source
    derived = bool(reactor.topic.derived_from) and source
    if committed.offset < 0:
        if decided and bounds.start > 0:
            raise LogMismatch(
                f"{reactor.name} on {seat.name}: the log begins at offset {bounds.start}, and the "
                "reader rule of a decider's events has to be followed from 0"
            )
        headless = FilterState(headless=True) if derived and bounds.start > 0 else None
        return Commit(bounds.start, bounds.topic_id, headless)
    try:
        commit = Commit.read(committed.offset, committed.metadata or "")
    except BadMetadata as error:
        raise LogMismatch(f"{reactor.name} on {seat.name}: {error}") from error
    if commit.topic_id != bounds.topic_id:
        problem = f"the topic was re-created (id {bounds.topic_id}, not {commit.topic_id})"
    elif commit.offset > bounds.end:
        problem = f"committed {commit.offset}, but the log ends at {bounds.end}: its tail was lost"
    elif commit.offset < bounds.start:
        problem = f"committed {commit.offset}, but retention has deleted up to {bounds.start}"
    else:
        return commit
    raise LogMismatch(
        f"{reactor.name} on {seat.name}: {problem}. Check the topic; to begin at its start, delete "
        f"the offsets: kafka-consumer-groups --delete-offsets --group {reactor.name} "
        f"--topic {seat.topic}"
    )


def encoder(reactor: Reactor, wiring: ReactorWiring) -> Encode:
    """Key and value bytes of the reactor's outcomes."""
    topic = reactor.outcomes
    if topic is None:
        return _nowhere
    codec, key = Codec(topic, wiring.schemas, wiring.outcome_ids), topic.key

    def encode(row: Any) -> tuple[bytes, bytes]:
        _, value = codec.encode(row)
        return str(getattr(row, key)).encode(), value

    return encode


def _nowhere(row: Any) -> tuple[bytes, bytes]:
    raise ValueError(f"there is no topic for the outcome {row!r}")
