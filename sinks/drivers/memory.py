"""Read models in memory: the reference that the other drivers are tested against.

A `MemoryStore` is the server, shared by any number of `MemorySink`s (writers). Tests break it
on purpose: lose a reply, refuse a connection, fail half-way, go back to an older state.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from sinks.drivers.check import SCORE_MAX, check
from sinks.drivers.rows import encoded, supported
from streams.runtime.position import Position
from streams.runtime.sink import (
    Changes,
    Delete,
    FenceRefused,
    Insert,
    Rank,
    RankMerge,
    ReadModel,
    Shape,
    SinkUnavailable,
    Timeline,
    Unrank,
    Upsert,
    Withdraw,
    Write,
)

Key = tuple[Any, ...]
Rows = dict[Key, Key]
"""Key columns (for a ranking: board, then member) → value columns (score, reached_ms)."""


@dataclass
class _Version:
    sealed: bool = False
    positions: dict[tuple[str, int], bytes] = field(default_factory=dict)
    rows: dict[tuple[str, int], Rows] = field(default_factory=dict)


@dataclass
class _Model:
    live: int = 1
    versions: dict[int, _Version] = field(default_factory=dict)


class MemoryStore:
    """All read models of one pretended server, and the faults it is told to show."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.models: dict[str, _Model] = {}
        self._refusals = 0
        self._lost_replies = 0
        self._changes_before_failure: int | None = None

    def refuse(self, times: int) -> None:
        """Refuse the next `times` calls; nothing of them happens."""
        self._refusals = times

    def lose_replies(self, times: int) -> None:
        """Carry out the next `times` writes, but let their writers think the line is dead."""
        self._lost_replies = times

    def fail_after(self, changes: int) -> None:
        """Break the next write after this many of its changes; a right store undoes them."""
        self._changes_before_failure = changes

    def heal(self) -> None:
        """Forget the faults that were asked for and have not shown yet."""
        self._refusals = self._lost_replies = 0
        self._changes_before_failure = None

    def snapshot(self) -> dict[str, _Model]:
        """A copy of everything stored."""
        with self.lock:
            return copy.deepcopy(self.models)

    def restore(self, snapshot: dict[str, _Model]) -> None:
        """Go back to an older state, as a failover to a lagging replica does."""
        with self.lock:
            self.models = copy.deepcopy(snapshot)

    def model(self, name: str) -> _Model:
        """The model of that name; `SinkUnavailable` while calls are being refused."""
        if self._refusals > 0:
            self._refusals -= 1
            raise SinkUnavailable("connection refused (injected)")
        return self.models.setdefault(name, _Model())

    def step(self, applied: int) -> None:
        """Told before each change of a write; raises where `fail_after` says so."""
        if self._changes_before_failure == applied:
            self._changes_before_failure = None
            raise SinkUnavailable(f"connection lost after {applied} changes (injected)")

    def reply(self) -> None:
        """Told after a write was applied; raises where `lose_replies` says so."""
        if self._lost_replies > 0:
            self._lost_replies -= 1
            raise SinkUnavailable("reply lost (injected)")


class MemorySink:
    """One writer of one read model in a `MemoryStore`; see `streams.runtime.sink.Sink`."""

    atomic = True

    def __init__(self, model: ReadModel, store: MemoryStore) -> None:
        supported(model)
        self.model = model
        self.store = store

    def live_version(self) -> int:
        with self.store.lock:
            return self._stored().live

    def prepare(self, version: int) -> None:
        with self.store.lock:
            self._stored().versions.setdefault(version, _Version())

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        with self.store.lock:
            stored = self._version(version)
            if stored.sealed:
                raise FenceRefused(f"{self.model.name} v{version} is sealed")
            raw = stored.positions.get((topic, partition))
            return None if raw is None else Position.decode(raw)

    def write(self, version: int, write: Write) -> None:
        check(self.model, write)
        with self.store.lock:
            models = self._stored()
            stored = models.versions.get(version, _Version())
            if stored.sealed:
                raise FenceRefused(f"{self.model.name} v{version} is sealed")
            at = (write.topic, write.partition)
            expected = None if write.expected is None else write.expected.encode()
            if stored.positions.get(at) != expected:
                raise FenceRefused(f"{self.model.name} v{version} {at}: the position has moved")
            staged = _Staged(stored, write.partition)
            for applied, change in enumerate(write.changes):
                self.store.step(applied)
                staged.apply(change)
            self.store.step(len(write.changes))
            for name, cutoff_ms in write.expire_before_ms.items():
                staged.expire(self.model.table(name), cutoff_ms)
            staged.commit()
            stored.positions[at] = write.position.encode()
            models.versions[version] = stored
            self.store.reply()

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        columns = self.model.table(table).columns
        with self.store.lock:
            stored = self._version(version).rows
            found = [
                (at, [key + values for key, values in rows.items()])
                for (name, at), rows in stored.items()
                if name == table and partition in (None, at)
            ]
        for at, lines in found:
            yield pl.DataFrame(lines, schema=columns, orient="row").with_columns(
                pl.lit(at, pl.Int32).alias("_partition")
            )

    def positions(self, version: int) -> dict[tuple[str, int], Position]:
        with self.store.lock:
            stored = self._version(version).positions
            return {at: Position.decode(raw) for at, raw in stored.items()}

    def seal(self, version: int) -> dict[tuple[str, int], Position]:
        with self.store.lock:
            self._stored().versions.setdefault(version, _Version()).sealed = True
            return self.positions(version)

    def unseal(self, version: int) -> None:
        with self.store.lock:
            self._version(version).sealed = False

    def switch(self, version: int) -> None:
        with self.store.lock:
            self._stored().live = version

    def versions(self) -> list[int]:
        with self.store.lock:
            return sorted(self._stored().versions)

    def drop(self, version: int) -> None:
        with self.store.lock:
            if version == self.live_version():
                raise ValueError(f"{self.model.name} v{version} is live and cannot be dropped")
            self._stored().versions.pop(version, None)

    def close(self) -> None:
        """Nothing is held."""

    def _stored(self) -> _Model:
        return self.store.model(self.model.name)

    def _version(self, version: int) -> _Version:
        return self._stored().versions.get(version, _Version())


class _Staged:
    """The changes of one write, beside the stored rows until `commit`."""

    def __init__(self, stored: _Version, partition: int) -> None:
        self._stored = stored
        self._partition = partition
        self._changed: dict[str, dict[Key, Key | None]] = {}

    def apply(self, change: Changes) -> None:
        match change:
            case Upsert(table, rows):
                width = len(table.key)
                ordered = rows.select(*table.columns)
                lines = {r[:width]: r[width:] for r in ordered.iter_rows()}
                self._of(table.name).update(lines)
            case Delete(table, rows):
                gone = rows.select(*table.key).iter_rows()
                self._of(table.name).update(dict.fromkeys(gone))
            case Rank(ranking, how, rows):
                for row in rows.select(*ranking.columns).iter_rows():
                    key, score = row[:-2], (saturated(row[-2]), row[-1])
                    old = self._get(ranking.name, key)
                    self._of(ranking.name)[key] = score if old is None else merged(how, old, score)
            case Unrank(ranking, members):
                named = set(members)
                keys = [k for k in self._keys(ranking.name) if k[-1] in named]
                self._of(ranking.name).update(dict.fromkeys(keys))
            case Insert(timeline, rows):
                self._insert(timeline, rows)
            case Withdraw(timeline, rows):
                out = set(rows.select(*timeline.feed, timeline.origin).iter_rows())
                keys = [k for k in self._keys(timeline.name) if k[:-1] in out]
                self._of(timeline.name).update(dict.fromkeys(keys))

    def _insert(self, timeline: Timeline, rows: pl.DataFrame) -> None:
        """Put entries in, feed by feed, and keep the newest."""
        held = self._of(timeline.name)
        width = len(timeline.feed)
        held.update({r[:-1]: r[-1:] for r in rows.select(*timeline.columns).iter_rows()})
        fed = set(rows.select(*timeline.feed).iter_rows())
        keys = [k for k in self._keys(timeline.name) if k[:width] in fed]
        frame = pl.DataFrame(keys, schema=timeline.key, orient="row")
        texts = encoded(frame, (timeline.origin, timeline.entry)).to_list()
        feeds: dict[Key, list[tuple[int, bytes, Key]]] = {}
        for key, text in zip(keys, texts, strict=True):
            (time_ms,) = self._get(timeline.name, key) or (0,)
            feeds.setdefault(key[:width], []).append((time_ms, text.encode(), key))
        for entries in feeds.values():
            held.update(dict.fromkeys(e[2] for e in sorted(entries)[: -timeline.entries_max]))

    def expire(self, table: Shape, cutoff_ms: int) -> None:
        """Forget the rows before the cutoff."""
        at = list(table.columns).index(str(table.time))
        keys = [k for k in self._keys(table.name) if k[at] < cutoff_ms]
        self._of(table.name).update(dict.fromkeys(keys))

    def commit(self) -> None:
        """Make the changes the stored state; cannot fail."""
        for name, changed in self._changed.items():
            rows = self._stored.rows.setdefault((name, self._partition), {})
            for key, values in changed.items():
                if values is None:
                    rows.pop(key, None)
                else:
                    rows[key] = values

    def _of(self, name: str) -> dict[Key, Key | None]:
        return self._changed.setdefault(name, {})

    def _rows(self, name: str) -> Rows:
        return self._stored.rows.get((name, self._partition), {})

    def _keys(self, name: str) -> list[Key]:
        changed = self._of(name)
        kept = [k for k in self._rows(name) if k not in changed]
        return kept + [k for k, values in changed.items() if values is not None]

    def _get(self, name: str, key: Key) -> Key | None:
        changed = self._of(name)
        return changed[key] if key in changed else self._rows(name).get(key)


def saturated(score: int) -> int:
    """The score, held within ±(2**53 − 1)."""
    return max(-SCORE_MAX, min(SCORE_MAX, score))


def merged(how: RankMerge, old: Key, new: Key) -> Key:
    """Two `(score, reached_ms)` of one member, merged as `RankMerge` says."""
    match how:
        case RankMerge.SUM:
            return (saturated(old[0] + new[0]), max(old[1], new[1]))
        case RankMerge.BEST:
            return max(old, new, key=lambda s: (s[0], -s[1]))
        case RankMerge.LAST:
            return max(old, new, key=lambda s: (s[1], s[0]))
