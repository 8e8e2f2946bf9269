"""The target topic as the lane's sink: records out, then the position, and never a hole between.

A **run** sends what is derived from one source partition. It begins at a position up to which all
is acknowledged, ends at the first record that is not (failed, timed out, purged: the outcome is
unknown) and is never continued: what is tried again is sent by a new run, whose records name none
before them (B3). Readers drop what such a run repeats, and what an old run still gets through
behind a hole (B2). Within a run order is kept by an idempotent producer (B5).

The position is the group's committed offset, with the whole of it as metadata (B4): it moves after
every record below it is acknowledged, so a crash derives some of them again and loses none.

`write` waits for all acknowledgements; so no record is ever in flight between two writes, nor when
a partition is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl
from confluent_kafka import KafkaException, Message, Producer

from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.wire import (
    HEARTBEAT,
    NONE,
    SOURCE,
    SOURCE_BYTES,
    SOURCE_DTYPE,
    Source,
    source_id,
)
from streams.runtime.position import NO_WATERMARK, Position
from streams.runtime.sink import SinkUnavailable, Upsert, Write

DELIVERY_TIMEOUT_MS = 20_000
"""A record that is not acknowledged by then has failed."""
FLUSH_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1_000 + 10
HEARTBEAT_MS = 1_000
"""A partition of the target that got no record is told the watermark when it has moved this far."""
QUEUE_WAIT_S = 0.05


class Positions(Protocol):
    """Where the positions of a derivation are kept, one a source partition."""

    def check(self) -> None:
        """Raise `LogMismatch` unless topics and store are as the derivation needs them."""
        ...

    def load(self, partition: int) -> Position | None:
        """The committed position. Raises `LogMismatch`, or `KafkaException` for an outage."""
        ...


@dataclass
class _Run:
    """What one run has sent: the last record, and the last watermark, of each target partition."""

    topic_id: str
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    told_ms: dict[int, int] = field(default_factory=dict)


_Parcel = tuple[int, bytes, bytes | None, bytes | None]
"""One record on its way: target partition, header, key, value."""


class TargetLog:
    """Carries what a derivation derives into its target topic. One thread at a time."""

    def __init__(
        self, derivation: Derivation, connect: Callable[[], Producer], positions: Positions
    ) -> None:
        self._derivation = derivation
        self._connect = connect
        self._positions = positions
        self._producer: Producer | None = None
        self._runs: dict[int, _Run] = {}

    # -- what a lane asks of a sink ------------------------------------------------------------

    def live_version(self) -> int:
        """There is one version: another derivation is another topic (B6)."""
        return 1

    def prepare(self, version: int) -> None:
        """Check the topics, which the catalogue makes. Raises as `Positions.check`."""
        self._positions.check()

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        """The committed position of a source partition; a new run begins there."""
        self._runs.pop(partition, None)
        return self._positions.load(partition)

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """None: a derivation has no state to go on from."""
        return iter(())

    def write(self, version: int, write: Write) -> None:
        """Send the records of a write and tell the watermark; return when all are acknowledged.
        Raises `SinkUnavailable` when that is not certain: then the run is over, and the same write
        may be tried again.
        """
        run = self._runs.pop(write.partition, None) or _Run(write.position.topic_id)
        producer = self._producer or self._connect()
        self._producer = None
        try:
            self._send(producer, self._parcels(run, write))
        except BaseException:
            producer.purge()  # else a late delivery would be a surprise
            raise
        self._producer = producer
        self._runs[write.partition] = run

    def close(self) -> None:
        """Nothing is in flight."""
        self._producer = None

    # -- one write -----------------------------------------------------------------------------

    def _send(self, producer: Producer, parcels: Iterator[_Parcel]) -> None:
        """Queue all, in order, and wait for every acknowledgement."""
        topic, failed = self._derivation.target.name, list[str]()

        def report(error: object, _: Message) -> None:
            if error is not None:
                failed.append(str(error))

        try:
            for partition, header, key, value in parcels:
                headers = [(SOURCE, header)]
                while not failed:
                    try:
                        producer.produce(topic, value, key, partition, report, headers=headers)
                    except BufferError:  # the queue is full
                        producer.poll(QUEUE_WAIT_S)
                    else:
                        break
            left = producer.flush(FLUSH_TIMEOUT_S)
        except KafkaException as error:
            raise SinkUnavailable(f"{topic}: {error}") from error
        if failed or left:
            raise SinkUnavailable(
                f"{topic}: {len(failed)} records failed, {left} are not acknowledged: {failed[:1]}"
            )

    def _parcels(self, run: _Run, write: Write) -> Iterator[_Parcel]:
        """The records of a write and the heartbeats after them; moves the run on."""
        for change in write.changes:
            if isinstance(change, Upsert) and change.rows.height:
                yield from self._rows(run, write, change.rows)
        idle = write.expected == write.position
        now_ms, offset = write.position.watermark_ms, write.position.next_offset - 1
        if self._derivation.source.event_time is None or now_ms == NO_WATERMARK:
            return
        for partition in range(self._derivation.target.partitions):
            told_ms = run.told_ms.get(partition, NO_WATERMARK)
            if now_ms - told_ms >= (1 if idle else HEARTBEAT_MS):
                prev = run.last.get(partition, NONE)
                run.last[partition], run.told_ms[partition] = (offset, HEARTBEAT), now_ms
                source = Source(
                    self._name(run),
                    write.partition,
                    self._derivation.source.partitions,
                    *(offset, HEARTBEAT),
                    *prev,
                    now_ms,
                )
                yield partition, source.pack(), None, None

    def _name(self, run: _Run) -> str:
        return source_id(self._derivation.name, run.topic_id)

    def _rows(self, run: _Run, write: Write, rows: pl.DataFrame) -> Iterator[_Parcel]:
        """The records of `RECORDS` rows, each with the one before it in its partition."""
        columns = {name: rows[name].to_numpy() for name in ("offset", "index", "watermark_ms")}
        partitions = rows["partition"].to_numpy()
        headers = np.zeros(rows.height, SOURCE_DTYPE)
        headers["id"] = int(self._name(run), 16)
        headers["partition"] = write.partition
        headers["partitions"] = self._derivation.source.partitions
        for name, column in columns.items():
            headers[name] = column
        for partition in np.unique(partitions).tolist():
            mine = np.flatnonzero(partitions == partition)
            last = run.last.get(partition, NONE)
            for name, before in zip(("offset", "index"), last, strict=True):
                headers["prev_" + name][mine] = np.concatenate([[before], columns[name][mine[:-1]]])
            at = int(mine[-1])
            run.last[partition] = (int(columns["offset"][at]), int(columns["index"][at]))
            run.told_ms[partition] = int(columns["watermark_ms"][at])
        raw = headers.tobytes()
        cut = range(0, len(raw), SOURCE_BYTES)
        yield from zip(
            partitions.tolist(),
            [raw[begin : begin + SOURCE_BYTES] for begin in cut],
            rows["key"].to_list(),
            rows["value"].to_list(),
            strict=True,
        )
