"""Read models in Redis or Valkey: one script a write, so data and position move together.

A write is one `EVALSHA` in one hash slot; the server runs it alone, so the fence is exact. What
it does not give is durability beyond the server's own (`appendfsync`, replicas): a server that
comes back in an older state is noticed by the fence, and the worker folds again from there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import orjson
import polars as pl
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from sinks.drivers.check import check
from sinks.drivers.redis import keys
from sinks.drivers.redis.errors import translated
from sinks.drivers.redis.pack import packed
from sinks.drivers.redis.scripts import REGISTER, SEAL, WRITE
from sinks.drivers.rows import decoded, supported
from streams.runtime.position import Position
from streams.runtime.sink import (
    FenceRefused,
    Ranking,
    ReadModel,
    Shape,
    Table,
    Timeline,
    Write,
)

Client = redis.Redis | RedisCluster

EXPIRED_ROWS_MAX = 2_000
"""Most buckets, or ranking members, that expiry removes in one write."""

_PAGE = 500
_BUCKET_ROWS_MAX = 10_000
_BOARD_HEAD = 500
_EVER = -math.inf
_FRAME_ROWS_MAX = 50_000


def connect(url: str, timeout_s: float = 10.0) -> Client:
    """A client of the server or Cluster at `url` that never repeats a command on its own: a
    repeated write would meet its own fence.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }
    with translated():
        client = redis.Redis.from_url(url, **options)
        if client.info("cluster").get("cluster_enabled"):
            client.close()
            return RedisCluster.from_url(url, **options)
        return client


class RedisSink:
    """One writer of one read model; see `streams.runtime.sink.Sink`."""

    atomic = True

    def __init__(self, model: ReadModel, client: Client) -> None:
        for name in (model.name, *(table.name for table in model.tables)):
            if not re.fullmatch(r"[a-zA-Z0-9_.-]+", name):
                raise TypeError(f"{name!r} is no name for a key")
        supported(model)
        self.model = model
        self._client: Any = client
        self._registered: set[tuple[int, int]] = set()

    def live_version(self) -> int:
        with translated():
            return int(self._client.get(keys.live(self.model.name)) or 1)

    def prepare(self, version: int) -> None:
        with translated():
            self._client.sadd(keys.versions(self.model.name), version)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        self._registered.discard((version, partition))
        prefix = keys.prefix(self.model.name, version, partition)
        with translated():
            sealed = self._client.exists(keys.sealed(self.model.name, version))
            raw = self._client.hget(prefix + "positions", topic)
        if sealed:
            raise FenceRefused(f"{self.model.name} v{version} is sealed")
        return None if raw is None else Position.decode(raw)

    def write(self, version: int, write: Write) -> None:
        check(self.model, write)
        operations = packed(self.model, write)
        self._register(version, write)
        prefix = keys.prefix(self.model.name, version, write.partition)
        with translated():
            verdict = WRITE(
                self._client,
                (prefix + "positions", prefix + "sealed"),
                write.topic,
                b"" if write.expected is None else write.expected.encode(),
                write.position.encode(),
                prefix,
                operations,
                EXPIRED_ROWS_MAX,
            )
        if verdict != b"ok":
            where = f"{self.model.name} v{version} {write.topic}/{write.partition}"
            raise FenceRefused(f"{where}: {verdict.decode()}")

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """A bucket of any size is held in memory whole, because a scan may show a row twice."""
        shape = self.model.table(table)
        for at in self._partitions(version) if partition is None else [partition]:
            prefix = keys.prefix(self.model.name, version, at)
            stored = self._positions(version, [at]).values()
            since_ms = max((one.expired_ms.get(table, _EVER) for one in stored), default=_EVER)
            for texts in _pages(self._row_texts(prefix, shape, since_ms), _FRAME_ROWS_MAX):
                yield decoded(texts, shape.columns).with_columns(
                    pl.lit(at, pl.Int32).alias("_partition")
                )

    def positions(self, version: int) -> dict[tuple[str, int], Position]:
        return self._positions(version, self._partitions(version))

    def seal(self, version: int) -> dict[tuple[str, int], Position]:
        """Two steps: no partition can be registered any more; then each known one is closed."""
        with translated():
            known = sorted(int(p) for p in SEAL(self._client, self._version_keys(version), version))
            for partition in known:
                self._client.set(keys.prefix(self.model.name, version, partition) + "sealed", 1)
        return self._positions(version, known)

    def unseal(self, version: int) -> None:
        with translated():
            for partition in self._partitions(version):
                self._client.delete(keys.prefix(self.model.name, version, partition) + "sealed")
            self._client.delete(keys.sealed(self.model.name, version))

    def switch(self, version: int) -> None:
        with translated():
            self._client.set(keys.live(self.model.name), version)

    def versions(self) -> list[int]:
        with translated():
            return sorted(int(v) for v in self._client.smembers(keys.versions(self.model.name)))

    def drop(self, version: int) -> None:
        if version == self.live_version():
            raise ValueError(f"{self.model.name} v{version} is live and cannot be dropped")
        self.seal(version)
        with translated():
            for partition in self._partitions(version):
                self._drop_partition(keys.prefix(self.model.name, version, partition))
            self._client.delete(keys.partitions(self.model.name, version))
            self._client.srem(keys.versions(self.model.name), version)
            self._client.delete(keys.sealed(self.model.name, version))
        self._registered = {known for known in self._registered if known[0] != version}

    def close(self) -> None:
        self._client.close()

    def _version_keys(self, version: int) -> tuple[str, str, str]:
        name = self.model.name
        return keys.sealed(name, version), keys.partitions(name, version), keys.versions(name)

    def _register(self, version: int, write: Write) -> None:
        """Make the partition known to `seal` before the first write to it, or be refused."""
        known = (version, write.partition)
        if write.expected is not None and known in self._registered:
            return
        with translated():
            open_ = REGISTER(self._client, self._version_keys(version), write.partition, version)
        if not open_:
            raise FenceRefused(f"{self.model.name} v{version} is sealed")
        self._registered.add(known)

    def _partitions(self, version: int) -> list[int]:
        with translated():
            known = self._client.smembers(keys.partitions(self.model.name, version))
        return sorted(int(p) for p in known)

    def _positions(
        self, version: int, partitions: Iterable[int]
    ) -> dict[tuple[str, int], Position]:
        found: dict[tuple[str, int], Position] = {}
        for partition in partitions:
            prefix = keys.prefix(self.model.name, version, partition)
            with translated():
                stored = self._client.hgetall(prefix + "positions")
            found |= {(t.decode(), partition): Position.decode(p) for t, p in stored.items()}
        return found

    def _row_texts(self, prefix: str, shape: Shape, since_ms: float) -> Iterator[bytes]:
        kind = "t" if isinstance(shape, Table) else "m"
        for buckets in _pages(self._buckets(prefix, shape.name, since_ms), _PAGE):
            if isinstance(shape, Timeline):
                feeds = self._places(_names(prefix, "f", shape.name, buckets))
                for feed, entries in zip(buckets, feeds, strict=True):
                    for entry, time_ms in entries:
                        yield b",".join([feed, entry, b"%d" % time_ms])
                continue
            hashes = self._hashes(_names(prefix, kind, shape.name, buckets))
            if isinstance(shape, Table):
                for bucket, fields in zip(buckets, hashes, strict=True):
                    yield from table_texts(bucket, fields, shape)
                continue
            places = self._places(_names(prefix, "z", shape.name, buckets))
            for board, scores, order in zip(buckets, hashes, places, strict=True):
                yield from board_texts(board, scores, order, shape)

    def _places(self, names: list[bytes]) -> Iterator[list[tuple[bytes, float]]]:
        """The orders of one slot: small ones many a round trip, large ones page by page."""
        with translated():
            heads = self._pipelined("zrange", names, 0, _BOARD_HEAD - 1, withscores=True)
            for name, head in zip(names, heads, strict=True):
                order, page = list(head), head
                while len(page) == _BOARD_HEAD:
                    stop = len(order) + _BOARD_HEAD - 1
                    page = self._client.zrange(name, len(order), stop, withscores=True)
                    order += page
                yield order

    def _buckets(self, prefix: str, table: str, since_ms: float) -> Iterator[bytes]:
        with translated():
            seen = {
                bucket
                for bucket, time_ms in self._client.zscan_iter(f"{prefix}b:{table}", count=_PAGE)
                if time_ms >= since_ms
            }
        return iter(sorted(seen))

    def _hashes(self, names: list[bytes]) -> Iterator[dict[bytes, bytes]]:
        """The hashes of one slot: small ones many a round trip, large ones page by page."""
        with translated():
            sizes = self._pipelined("hlen", names)
            small = [n for n, size in zip(names, sizes, strict=True) if size <= _BUCKET_ROWS_MAX]
            found = dict(zip(small, self._pipelined("hgetall", small), strict=True))
            for name in names:
                if name in found:
                    yield found[name]
                else:
                    yield dict(self._client.hscan_iter(name, count=_BUCKET_ROWS_MAX))

    def _pipelined(
        self, command: str, names: list[bytes], *arguments: Any, **options: Any
    ) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                getattr(pipe, command)(name, *arguments, **options)
            return list(pipe.execute())

    def _drop_partition(self, prefix: str) -> None:
        for entry in self._client.smembers(prefix + "tables"):
            kind, _, name = entry.decode().partition(":")
            index = f"{prefix}b:{name}"
            while buckets := self._client.zrange(index, 0, _PAGE - 1):
                if kind == "z":
                    self._drop_boards(prefix, name, buckets)
                else:
                    self._client.unlink(*_names(prefix, kind, name, buckets))
                self._client.zrem(index, *buckets)
        self._client.delete(prefix + "tables", prefix + "positions", prefix + "sealed")

    def _drop_boards(self, prefix: str, name: str, boards: list[bytes]) -> None:
        """Members' indexes first, found through the orders; then orders and scores."""
        orders = _names(prefix, "z", name, boards)
        index = f"{prefix}i:{name}:".encode()
        while orders:
            heads = self._pipelined("zrange", orders, 0, _BOARD_HEAD - 1)
            with self._client.pipeline(transaction=False) as pipe:
                for order, head in zip(orders, heads, strict=True):
                    if head:
                        # A pipeline of a Cluster has no `unlink` of several keys; these are of
                        # one slot.
                        members = [index + place[keys.PLACE_DIGITS :] for place in head]
                        pipe.execute_command("UNLINK", *members)
                        pipe.zremrangebyrank(order, 0, len(head) - 1)
                pipe.execute()
            orders = [o for o, head in zip(orders, heads, strict=True) if len(head) == _BOARD_HEAD]
        self._client.unlink(*_names(prefix, "z", name, boards), *_names(prefix, "m", name, boards))


def _names(prefix: str, kind: str, table: str, buckets: list[bytes]) -> list[bytes]:
    head = f"{prefix}{kind}:{table}:".encode()
    return [head + bucket for bucket in buckets]


def board_texts(
    board: bytes,
    scores: dict[bytes, bytes],
    order: list[tuple[bytes, float]],
    ranking: Ranking,
) -> Iterator[bytes]:
    """The members of a board as its scores have them and as its order has them. Both are served,
    so both must count: where they disagree a member shows twice.
    """
    found = set(scores.items()) | {keys.standing(place, score) for place, score in order}
    head = [board] if ranking.board else []
    for member, score in found:
        yield b",".join([*head, orjson.dumps(member.decode()), score])


def table_texts(bucket: bytes, fields: dict[bytes, bytes], table: Table) -> Iterator[bytes]:
    """The text of every row of a bucket's hash."""
    head = [bucket] if table.bucket else []
    whole = len(table.bucket) == len(table.key)
    for field, value in fields.items():
        parts = head if whole else [*head, field]
        yield b",".join([*parts, value] if table.values else parts)


def _pages(items: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while page := list(islice(items, size)):
        yield page
