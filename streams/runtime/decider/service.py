"""A decider as a Faust service: the shell around the pump.

    command reader (group) ─┐        Faust agent
                            │             ⋮ shifts
                            ├─▶ works ─▶ pump thread ─▶ producer
    event reader (assigned) ┘                └─▶ answers (Redis), snapshots

Faust supervises; the readers are threads; owners and their state belong to the pump's thread. The
agent sends the pump's thread to work in shifts: as long as there is work it takes it straight from
the readers, since a way through the event loop costs more than deciding a command.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faust
import structlog
from confluent_kafka import KafkaException

from streams.runtime import kafka
from streams.runtime.avro import RegistryUnavailable, SchemaSource
from streams.runtime.decider.answering import Answering
from streams.runtime.decider.codec import Codec, with_control_records
from streams.runtime.decider.echo import Echo, EchoReader
from streams.runtime.decider.filter import BrokenChain
from streams.runtime.decider.folded import FoldFailed
from streams.runtime.decider.outgoing import CONFIG, Outgoing
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.ports import CommandsReplaced, Phase
from streams.runtime.decider.pump import (
    Assigned,
    Outside,
    Pump,
    Revoked,
    Work,
)
from streams.runtime.decider.recovery import BROKER_TIMEOUT_S, RETRY_S, Recovery
from streams.runtime.decider.rules import Decider
from streams.runtime.decider.snapshot_store import SnapshotStore
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.lane.journal import Journal
from streams.runtime.lane.reader import Reader
from streams.runtime.lane.service import LaneApp
from streams.runtime.lane.span import Seat
from streams.runtime.metrics import Metrics
from streams.runtime.metrics.decider import DeciderMetrics
from streams.runtime.native import Choice, sending
from streams.runtime.native.feed import opened
from streams.runtime.settings import Kafka

STUCK_AFTER_S = 120.0
TELL_S = 1.0
SHIFT_S = 1.0
"""How long the pump works before the agent has a look at it."""
STAY_S = 0.05
"""How long it waits for more before it goes."""
NEVER_IDLE_MS = 2**31

log = structlog.get_logger()


@dataclass(frozen=True)
class DeciderWiring:
    """What the deciders of a worker share. `schema_ids` has the ids of both topics' records by
    topic and full name.
    """

    system: str
    kafka: Kafka
    schemas: SchemaSource
    schema_ids: Mapping[str, Mapping[str, int]]
    redis_url: str
    snapshots: SnapshotStore
    metrics: Metrics
    journals: Path
    crashed: bool = False
    reader: Choice = "auto"
    """What reads commands and events, and sends events."""


class Deciding(faust.Service):  # type: ignore[misc]
    """Runs one decider in this process, for the partitions that its group gives it."""

    def __init__(self, app: LaneApp, decider: Decider, wiring: DeciderWiring) -> None:
        super().__init__(loop=app.loop)
        if decider.commands.partitions != decider.events.partitions:
            raise ValueError(f"{decider.name}: commands and events have other partition counts")
        self.decider = decider
        self.name = decider.name
        self.failure: BaseException | None = None
        self._app = app
        self._wiring = wiring
        self._stopping = threading.Event()
        self._works: queue.SimpleQueue[Work] = queue.SimpleQueue()  # the readers bound it
        self._channel = app.channel(maxsize=0)
        self._called = False
        self._admin = kafka.shared_admin(wiring.kafka)
        self._journal = Journal(wiring.journals / f"{decider.name}.journal", crashed=wiring.crashed)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"pump-{decider.name}")
        self._assigned_s: dict[int, float] = {}
        self._told_s = 0.0
        self.metrics = wiring.metrics.agent(
            decider.name, system=wiring.system, topic=decider.commands.name, store="log"
        )
        labels = (wiring.system, decider.name, decider.commands.name)
        self.decisions = DeciderMetrics(wiring.metrics, labels)
        self._answering = Answering(wiring.redis_url, self.decisions.dropped)
        self._recovery = Recovery(
            decider,
            wiring.kafka,
            self._admin,
            wiring.snapshots,
            restored=self._hand,
            failed=self._failed,
            stopping=self._stopping,
            metrics=self.decisions,
        )
        self._reader = self._command_reader()
        self._echoes = self._echo_reader()
        self.pump = self._pump()
        app.agent(self._channel, name=decider.name)(self._agent())

    def _command_reader(self) -> Reader:
        wiring, topic = self._wiring, self.decider.commands.name
        rows_max = self.decider.in_flight_max  # the reader pauses when it has more at hand
        consumer, feed = opened(wiring.kafka, self.decider.name, topic, wiring.reader, rows_max)
        return Reader(
            consumer,
            topic,
            locate=self._locate,
            hand=self._hand,
            failed=self._failed,
            left=lambda partitions: self._hand(Revoked(partitions)),
            ends=self.metrics.log_end,
            rows_max=self.decider.in_flight_max,
            linger_ms=0,
            idle_ms=NEVER_IDLE_MS,
            feed=feed,
        )

    def _echo_reader(self) -> EchoReader:
        wiring, topic = self._wiring, self.decider.events.name
        group = f"{self.decider.name}.events"
        consumer, feed = opened(wiring.kafka, group, topic, wiring.reader)
        return EchoReader(consumer, topic, hand=self._hand, failed=self._failed, feed=feed)

    def _pump(self) -> Pump:
        wiring, decider = self._wiring, self.decider
        ids = wiring.schema_ids
        events = with_control_records(decider.events)
        return Pump(
            decider,
            (
                Codec(decider.commands, wiring.schemas, ids[decider.commands.name]),
                Codec(events, wiring.schemas, ids[events.name]),
            ),
            Outgoing(
                events.name,
                lambda: sending.opened(wiring.kafka, events.name, wiring.reader, **CONFIG),
            ),
            self._journal,
            outside=Outside(
                restore=self._recovery.restore,
                follow=self._echoes.follow,
                leave=self._echoes.leave,
                restart=self._restart,
                span_done=self._reader.done,
                echo_done=self._echoes.done,
                answer=self._answering.tell,
                snapshot=self._recovery.save,
                polled_s=lambda: self._reader.polled_s,
            ),
            writer=f"{socket.gethostname()}/{os.getpid()}",
        )

    # -- Faust ----------------------------------------------------------------------------------

    def _agent(self) -> Callable[[Any], Any]:
        async def decide(shifts: Any) -> None:
            async for _ in shifts:
                try:
                    await asyncio.wrap_future(self._executor.submit(self._shift))
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # Polars panics are no Exceptions
                    self._end(error)

        return decide

    async def on_start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._app.flow_control.resume()  # Faust's consumer would do this; it is off

    @faust.Service.task  # type: ignore[untyped-decorator]
    async def _begin(self) -> None:
        """Start reading once the agent listens: a channel without listeners drops silently."""
        while not self._channel.subscriber_count:
            await self.sleep(0.01)
        self._answering.start()
        self._echoes.start()
        self._reader.start()
        if self.decider.standby:
            everything = range(self.decider.events.partitions)
            await asyncio.wrap_future(self._executor.submit(self.pump.stand_by, everything))

    async def on_stop(self) -> None:
        """Stop deciding; what is in flight may land and is then answered by the next owner."""
        self._stopping.set()
        self._reader.stop()
        self._echoes.stop()
        self._executor.submit(self.pump.close)
        await asyncio.to_thread(self._executor.shutdown)
        self._reader.abandon()
        for thread in (self._reader, self._echoes):
            if thread.is_alive():
                await asyncio.to_thread(thread.join, BROKER_TIMEOUT_S)
        await asyncio.to_thread(self._recovery.close)
        if self._answering.is_alive():
            await asyncio.to_thread(self._answering.stop)
        self._journal.close()

    @property
    def ready(self) -> bool:
        """Whether every partition that the group gave to this process is being decided."""
        owners = [desk.owner for desk in list(self.pump.desks.values()) if desk.seat is not None]
        owning = all(owner is not None and owner.phase is Phase.OWNING for owner in owners)
        return self._reader.joined and owning and not self.stuck

    @property
    def stuck(self) -> bool:
        """Whether a reader's thread has died or has not turned for long."""
        quiet_s = time.monotonic() - min(self._reader.polled_s, self._echoes.polled_s)
        return self.failure is not None or quiet_s > STUCK_AFTER_S

    # -- the pump's thread ----------------------------------------------------------------------

    def _shift(self) -> None:
        """Do what there is to do, and what comes meanwhile."""
        until_s = time.monotonic() + SHIFT_S
        while not self._stopping.is_set() and time.monotonic() < until_s:
            try:
                self._process(self._works.get(timeout=STAY_S))
            except queue.Empty:
                break
        self._called = False
        if not self._works.empty():  # handed over since, by who saw that the pump was called
            self._call()

    def _process(self, work: Work) -> None:
        if self._stopping.is_set():
            return
        began = time.monotonic()
        match work:
            case Revoked(partitions):
                for partition in partitions:
                    self.decisions.forget(partition)
                self.metrics.revoked(partitions)
            case Assigned(seat):
                self._assigned_s[seat.partition] = began
                self.metrics.assigned([seat.partition])
        try:
            self.pump.process(work)
        except (BrokenChain, FoldFailed, CommandsReplaced) as error:
            raise LogMismatch(f"{self.name}: {error}") from error
        except RegistryUnavailable as error:
            # Nothing was decided of it; the process starts anew and reads it again.
            raise ConnectionError(f"the registry is needed for a new schema: {error}") from error
        if not (isinstance(work, Echo) and work.partition < 0):
            self.decisions.worked(time.monotonic() - began)
        if began - self._told_s >= TELL_S:
            self._tell(began)

    def _tell(self, now_s: float) -> None:
        """Report, and publish the next command's offset for lag tools."""
        self._told_s = now_s
        for desk in self.pump.desks.values():
            owner = desk.owner
            if owner is None or desk.seat is None:
                continue
            self._tell_of(owner)
            if owner.phase is Phase.OWNING:
                following = owner.folded.filter.source_offset + 1
                self._reader.commit(owner.partition, following)
                self.metrics.progress(
                    owner.partition, following, watermark_ms=0, appended_ms=owner.folded.clock_ms
                )
                if (since := self._assigned_s.pop(owner.partition, None)) is not None:
                    self.decisions.recovered(now_s - since)

    def _tell_of(self, owner: Owner) -> None:
        tally = owner.tally
        totals = {
            "decided": tally.decided,
            "stale": tally.stale,
            "abandoned": tally.abandoned,
        }
        self.decisions.tell(owner.partition, owner.in_flight, tally.claims, totals)

    def _restart(self, seat: Seat, fresh: Seat, offset: int) -> None:
        """A10: the commands from the next one on, or not at all."""
        bounds = self._bounds(seat)
        if not bounds.start <= offset <= bounds.end:
            raise LogMismatch(
                f"{self.name} on {seat.name}: the next command to decide is at offset {offset}, "
                f"but the log has {bounds.start} to {bounds.end}: commands were deleted undecided, "
                "or the topic was re-created. Check the topic; restore it, or begin new topics"
            )
        self._reader.restart(seat, fresh, offset)

    # -- any thread -----------------------------------------------------------------------------

    def _locate(self, seat: Seat) -> int:
        """Where the reader begins: at the end, until the owner knows the next command."""
        self._hand(Assigned(seat))
        return self._bounds(seat).end

    def _bounds(self, seat: Seat) -> kafka.LogBounds:
        """Ask the broker; waits while it is down, and raises what it said last when the worker
        stops or the seat is revoked meanwhile. Raises `UnknownTopic`.
        """
        while True:
            try:
                return kafka.log_bounds(self._admin, seat.topic, seat.partition, BROKER_TIMEOUT_S)
            except (KafkaException, TimeoutError) as error:
                log.warning("waiting", agent=self.name, at=seat.name, error=str(error))
                if seat.revoked or self._stopping.wait(RETRY_S):
                    raise

    def _hand(self, work: Work) -> None:
        self._works.put(work)
        if not self._called:
            self._call()

    def _call(self) -> None:
        """Have the pump come; once too often does no harm."""
        self._called = True
        asyncio.run_coroutine_threadsafe(self._channel.put(True), self._loop)

    def _failed(self, error: BaseException) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException) -> None:
        """An error that nobody expected ends the worker; its supervisor starts another."""
        if self.failure is None and not self._stopping.is_set():
            self.failure = error
            log.error("decider failed", agent=self.name, exc_info=error)
            self._app.end(error)
