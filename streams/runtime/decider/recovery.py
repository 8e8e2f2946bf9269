"""The background work of a decider: the state that an owner begins with, and snapshots of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from confluent_kafka import KafkaException

from streams.runtime import kafka
from streams.runtime.decider.archive import Archive, Logs
from streams.runtime.decider.echo import record_at
from streams.runtime.decider.folded import Folded
from streams.runtime.decider.ports import Last
from streams.runtime.decider.pump import Restored
from streams.runtime.decider.rules import Decider
from streams.runtime.decider.snapshot_store import SnapshotStore, StoreUnavailable
from streams.runtime.decider.state import Image
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.metrics.decider import DeciderMetrics
from streams.runtime.position import FilterState
from streams.runtime.settings import Kafka

BROKER_TIMEOUT_S = 10.0
RETRY_S = 0.5

log = structlog.get_logger()


class Recovery:
    """Restores and keeps the states of one decider, in threads of its own.

    `restored` is handed what was found, `failed` an error that nobody expected; both are called in
    these threads. `stopping` ends the waiting for what is down.
    """

    def __init__(
        self,
        decider: Decider,
        cluster: Kafka,
        admin: Any,
        store: SnapshotStore,
        *,
        restored: Callable[[Restored], None],
        failed: Callable[[BaseException], None],
        stopping: threading.Event,
        metrics: DeciderMetrics,
    ) -> None:
        self._decider = decider
        self._cluster = cluster
        self._admin = admin
        self._archive = Archive(decider, store)
        self._hand = restored
        self._failed = failed
        self._stopping = stopping
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(2, thread_name_prefix=f"snapshots-{decider.name}")
        self._saving: set[int] = set()
        self._logs: dict[int, Logs] = {}

    def restore(self, partition: int) -> None:
        """Find the state to begin with; it is handed over when it is there."""
        self._threads.submit(self._restored, partition)

    def save(self, partition: int, image: Image, filter_state: FilterState, last: Last) -> None:
        """Keep a snapshot; while one of the partition is being written, later ones are let go."""
        if partition not in self._saving:  # else the store is slow, and a later one will do
            self._saving.add(partition)
            self._threads.submit(self._saved, partition, image, filter_state, last)

    def close(self) -> None:
        """Wait for what is being written; `stopping` must be set."""
        self._threads.shutdown()

    def _restored(self, partition: int) -> None:
        """Find the state to begin with; waits while broker or store are down."""
        name = self._decider.name
        while not self._stopping.is_set():
            try:
                folded, logs = self._found(partition)
            except (KafkaException, StoreUnavailable, TimeoutError) as error:
                log.warning("waiting", agent=name, partition=partition, error=str(error))
                self._stopping.wait(RETRY_S)
            except BaseException as error:
                self._failed(error)
                return
            else:
                self._logs[partition] = logs
                self._hand(Restored(partition, folded, logs.commands_topic_id))
                return

    def _found(self, partition: int) -> tuple[Folded, Logs]:
        topics = self._decider.commands.name, self._decider.events.name
        commands, events = (
            kafka.log_bounds(self._admin, topic, partition, BROKER_TIMEOUT_S) for topic in topics
        )
        logs = Logs(commands.topic_id, events.topic_id, events.start, events.end)
        folded = self._archive.newest(partition, logs, lambda at: self._record_at(partition, at))
        if folded.next_offset < events.start:
            raise LogMismatch(
                f"{self._decider.name} on {topics[1]}/{partition}: no usable snapshot, and "
                f"retention has deleted the events before offset {events.start}. Restore a "
                "snapshot, or set retention.ms=-1 before it is too late"
            )
        return folded, logs

    def _record_at(self, partition: int, offset: int) -> Last | None:
        consumer = kafka.consumer(self._cluster, f"{self._decider.name}.events")
        try:
            return record_at(consumer, self._decider.events.name, partition, offset)
        finally:
            consumer.close()

    def _saved(self, partition: int, image: Image, filter_state: FilterState, last: Last) -> None:
        try:
            logs = self._logs[partition]
            written = self._archive.keep(partition, image, filter_state, last, logs)
            self._metrics.snapshot(partition, written.size, written.seconds)
        except StoreUnavailable as error:
            log.warning("snapshot not kept", agent=self._decider.name, error=str(error))
        except BaseException as error:
            self._failed(error)
        finally:
            self._saving.discard(partition)
