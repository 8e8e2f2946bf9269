"""Keeping and finding snapshots of a decider: who may use one, and how many are kept (A11)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from streams.runtime.decider.folded import Folded, empty
from streams.runtime.decider.ports import Last
from streams.runtime.decider.rules import Decider
from streams.runtime.decider.snapshot import (
    FORMAT,
    BadSnapshot,
    Heading,
    Identity,
    heading_of,
    read,
    write,
)
from streams.runtime.decider.snapshot_store import NoSnapshot, SnapshotStore, StoreUnavailable
from streams.runtime.decider.state import Image
from streams.runtime.position import FilterState

KEPT = 3

log = structlog.get_logger()


@dataclass(frozen=True)
class Logs:
    """The two topics as they are now: their ids, and the offsets `[start, end)` of the events."""

    commands_topic_id: str
    events_topic_id: str
    start: int
    end: int


class Written(msgspec.Struct, frozen=True):
    """What writing a snapshot took."""

    size: int
    seconds: float


class Archive:
    """The snapshots of one decider in a store."""

    def __init__(self, decider: Decider, store: SnapshotStore) -> None:
        self._decider = decider
        self._store = store

    def _prefix(self, partition: int) -> str:
        return f"deciders/{self._decider.name}/{partition:05d}/"

    def keep(
        self, partition: int, image: Image, filter_state: FilterState, last: Last, logs: Logs
    ) -> Written:
        """Write a snapshot and delete all but the newest. Raises `StoreUnavailable`."""
        began = time.monotonic()
        heading = Heading(
            *(FORMAT, self._decider.name, partition, self._decider.rules.version),
            *(last.offset + 1, filter_state, Identity.of(last)),
            *(logs.commands_topic_id, logs.events_topic_id),
        )
        prefix = self._prefix(partition)
        size = self._store.put(f"{prefix}{heading.next_offset:020d}", write(heading, image))
        for name in self._store.list(prefix)[:-KEPT]:
            self._store.delete(name)
        return Written(size, time.monotonic() - began)

    def newest(self, partition: int, logs: Logs, record_at: Callable[[int], Last | None]) -> Folded:
        """The state of the newest usable snapshot, or the empty one at offset 0.

        `record_at` gives the record of the event log at an offset, if it is still there. Must be
        asked before the claim is sent: then no snapshot used lies behind it. Raises
        `StoreUnavailable`.
        """
        for name in reversed(self._store.list(self._prefix(partition))):
            try:
                found = self._usable(name, partition, logs, record_at)
            except (BadSnapshot, NoSnapshot) as error:
                log.warning("snapshot not used", name=name, reason=str(error))
                continue
            log.info("snapshot", name=name)
            return found
        return self._folded(empty(self._decider.rules), FilterState(), 0)

    def _usable(
        self,
        name: str,
        partition: int,
        logs: Logs,
        record_at: Callable[[int], Last | None],
    ) -> Folded:
        heading = heading_of(self._store.get(name))
        ours = (self._decider.name, partition, self._decider.rules.version)
        topics = (logs.commands_topic_id, logs.events_topic_id)
        if (heading.decider, heading.partition, heading.rules_version) != ours:
            raise BadSnapshot("of another decider, partition or version of the rules")
        if (heading.commands_topic_id, heading.events_topic_id) != topics:
            raise BadSnapshot("of topics that were re-created since")
        if not logs.start <= heading.last.offset < heading.next_offset <= logs.end:
            raise BadSnapshot("its last record is not in the log any more")
        last = record_at(heading.last.offset)
        if last is None or Identity.of(last) != heading.last:
            raise BadSnapshot("the log holds another record where it ends")
        snapshot = read(self._store.get(name), self._decider.rules.tables)
        return self._folded(snapshot.image, heading.filter, heading.next_offset)

    def _folded(self, image: Image, filter_state: FilterState, next_offset: int) -> Folded:
        return Folded(
            self._decider.rules,
            image,
            key_ttl_ms=self._decider.idempotency_ttl_ms,
            filter_state=filter_state,
            next_offset=next_offset,
        )


__all__ = ["Archive", "Logs", "StoreUnavailable", "Written"]
