"""A lane as a Faust service, and the Faust app that runs any number of them.

Faust keeps the worker, the agents, supervision and the web server; its own Kafka consumer and
producer stay off (`enable_kafka = False`): the lane's reader brings the data instead.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import faust
import structlog
from faust.app.base import BootStrategy

from streams.runtime import kafka
from streams.runtime.avro import SchemaSource
from streams.runtime.dead_letters import KafkaOutbox
from streams.runtime.decoding import decoder
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.journal import Journal
from streams.runtime.lane.overlap import Overlap
from streams.runtime.lane.patience import Stopped
from streams.runtime.lane.pump import Pump
from streams.runtime.lane.reader import Reader
from streams.runtime.lane.span import Seat, Span
from streams.runtime.lane.store import WriteSide
from streams.runtime.metrics import AgentMetrics, Metrics
from streams.runtime.native import Choice
from streams.runtime.native.feed import opened
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.settings import Kafka

BROKER_TIMEOUT_S = 10.0
LETTERS = {"message.max.bytes": 1_000_000_000}
"""A dead letter is larger than the record that came in; the broker has the say, not the client."""
STUCK_AFTER_S = 120.0

log = structlog.get_logger()


@dataclass(frozen=True)
class Wiring:
    """What every lane of a worker shares."""

    system: str
    kafka: Kafka
    schemas: SchemaSource
    open_sink: Callable[[Projection], WriteSide]
    metrics: Metrics
    journals: Path
    crashed: bool = False
    """Whether the process before this one is known to have ended itself; see `Journal`."""
    reader: Choice = "auto"
    """What reads the log, see `streams.runtime.native`."""


class Lane(faust.Service):  # type: ignore[misc]
    """Feeds one agent: reader thread → Faust channel → agent → pump thread → sink."""

    def __init__(self, app: LaneApp, projection: Projection, wiring: Wiring) -> None:
        super().__init__(loop=app.loop)
        self.projection = projection
        self.name = projection.name
        self.failure: BaseException | None = None
        self._app = app
        self._wiring = wiring
        self._stopping = threading.Event()
        self._channel = span_channel(app)
        self._admin = kafka.shared_admin(wiring.kafka)
        self._sink = wiring.open_sink(projection)
        self._journal = Journal(
            wiring.journals / f"{projection.name}.journal", crashed=wiring.crashed
        )
        self.metrics = wiring.metrics.agent(
            projection.name,
            system=wiring.system,
            topic=projection.topic.name,
            store=projection.store,
        )
        self.pump = Pump(
            projection,
            self._sink,
            decoder(projection.topic, wiring.schemas, projection.reads),
            KafkaOutbox(lambda: kafka.producer(wiring.kafka, **LETTERS)),
            self.metrics,
            bounds=self._bounds,
            restart=self._restart,
            commit=self._commit,
            stopping=self._stopping,
            journal=self._journal,
        )
        consumer, feed = opened(wiring.kafka, projection.name, projection.topic.name, wiring.reader)
        self._reader = Reader(
            consumer,
            projection.topic.name,
            locate=self.pump.locate,
            hand=self._hand,
            failed=self._failed,
            left=self.metrics.revoked,
            ends=self.metrics.log_end,
            rows_max=projection.rows_max,
            linger_ms=projection.linger_ms,
            idle_ms=projection.idle_ms,
            feed=feed,
        )
        self._overlap = Overlap(self.pump, self._reader.done, self._failed)
        app.agent(self._channel, name=projection.name)(self._agent())

    def _agent(self) -> Callable[[Any], Any]:
        async def fold(spans: Any) -> None:
            async for span in spans:
                try:
                    # Faust stops agents first: the pump goes on when this is cancelled.
                    await asyncio.wrap_future(self._overlap.take(span))
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # Polars panics are no Exceptions
                    self._end(error)
                self.metrics.queue(self._reader.queued_rows)

        return fold

    async def on_start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._app.flow_control.resume()  # Faust's consumer would do this; it is off

    @faust.Service.task  # type: ignore[untyped-decorator]
    async def _begin(self) -> None:
        """Start reading once the agent listens: a channel without listeners drops silently."""
        while not self._channel.subscriber_count:
            await self.sleep(0.01)
        self._reader.start()

    async def on_stop(self) -> None:
        """Finish the span in hand, drop what is queued (its position is not stored), leave."""
        self._stopping.set()
        self._reader.stop()
        await asyncio.to_thread(self._overlap.close)
        self._reader.abandon()
        if self._reader.is_alive():
            await asyncio.to_thread(self._reader.join, BROKER_TIMEOUT_S)
        self._journal.close()
        self._sink.close()

    @property
    def ready(self) -> bool:
        """Whether the group has given this lane its partitions (possibly none) and it polls."""
        return self._reader.joined and not self.stuck

    @property
    def stuck(self) -> bool:
        """Whether the reader's thread has died or has not turned for long."""
        alive_s = max(self._reader.polled_s, self.pump.patience.tried_s)
        quiet_s = time.monotonic() - alive_s
        return self.failure is not None or quiet_s > STUCK_AFTER_S

    # -- called from the reader's thread and the pump's ---------------------------------------

    def _hand(self, span: Span) -> None:
        asyncio.run_coroutine_threadsafe(self._channel.put(span), self._loop)

    def _failed(self, error: BaseException) -> None:
        if self._stopping.is_set() or isinstance(error, Stopped):
            return
        self._loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException) -> None:
        """An error that nobody expected ends the worker; its supervisor starts another."""
        if self.failure is None and not self._stopping.is_set():
            self.failure = error
            log.error("lane failed", agent=self.projection.name, exc_info=error)
            self._app.end(error)

    def _restart(self, seat: Seat, fresh: Seat, offset: int) -> None:
        self._reader.restart(seat, fresh, offset)

    def _bounds(self, seat: Seat) -> LogBounds:
        return kafka.log_bounds(self._admin, seat.topic, seat.partition, BROKER_TIMEOUT_S)

    def _commit(self, seat: Seat, position: Position) -> None:
        self._reader.commit(seat.partition, position.next_offset)


class Agent(Protocol):
    """What a worker runs: a Faust service that feeds one agent of that name."""

    name: str

    @property
    def ready(self) -> bool:
        """Whether it has its partitions, possibly none, and works on them."""
        ...

    @property
    def stuck(self) -> bool:
        """Whether one of its threads has died or hangs."""
        ...

    @property
    def metrics(self) -> AgentMetrics: ...


class _Boot(BootStrategy):  # type: ignore[misc]
    enable_kafka = False


class LaneApp(faust.App):  # type: ignore[misc]
    """The Faust app of one worker process; `ended` resolves with the error that ends it."""

    BootStrategy = _Boot
    lanes: list[Agent]
    ended: asyncio.Future[BaseException | None]

    def end(self, error: BaseException | None = None) -> None:
        """Ask the worker to stop in an orderly way; the first caller's reason counts."""
        if not self.ended.done():
            self.ended.set_result(error)


def span_channel(app: LaneApp) -> Any:
    """Where spans wait for their agent, in the order they were put.

    Without a bound: a full one may let a later span pass one that waits for room. The reader bounds
    what is out.
    """
    return app.channel(maxsize=0)


MakeAgent = Callable[[LaneApp], Agent]


def lane(projection: Projection, wiring: Wiring) -> MakeAgent:
    """Makes the lane of a projection in an app."""
    return lambda app: Lane(app, projection, wiring)


async def build_app(
    name: str, broker: Kafka, agents: Sequence[MakeAgent], web_port: int, data: Path
) -> LaneApp:
    """A Faust app with these agents; nothing reads before it starts. `data` is a folder that Faust
    may keep files in.
    """
    await asyncio.to_thread(data.mkdir, parents=True, exist_ok=True)
    app = LaneApp(
        name,
        broker=f"kafka://{broker.bootstrap_servers}",
        store="memory://",
        datadir=data,
        web_port=web_port,
        web_host="127.0.0.1",
        logging_config=None,
        topic_disable_leader=True,
        loop=asyncio.get_running_loop(),
    )
    app.ended = app.loop.create_future()
    app.lanes = [make(app) for make in agents]
    for one in app.lanes:
        await app.add_runtime_dependency(one)
    return app
