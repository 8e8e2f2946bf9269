"""Reads of a read model in Redis or Valkey, for the API. Writes nothing.

Every read covers all log partitions in one round trip (two where a member has to be found first)
and goes to the live version, which is looked up at most every `LIVE_MS`. A version should
therefore be dropped only a second after another was switched to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import orjson
import polars as pl
import redis.asyncio
from redis.exceptions import NoScriptError

from sinks.drivers.redis import keys, table_texts
from sinks.drivers.redis.errors import translated
from sinks.drivers.redis.scripts import Script
from sinks.drivers.rows import decoded, encoded, plain, row_of, text_of
from streams.runtime.position import Position, applied
from streams.runtime.sink import Ranking, ReadModel, Table, Timeline
from streams.runtime.topic import Topic

LIVE_MS = 500
"""How long the number of the live version and its partitions are believed."""


_AHEAD = Script(files(__package__).joinpath("ahead.lua").read_text())


@dataclass(frozen=True)
class Ranked:
    """A member of a board; `rank` counts from 1 over all log partitions."""

    rank: int
    member: str
    score: int
    reached_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a timeline."""

    time_ms: int
    origin: str
    entry: str

    def order(self) -> tuple[int, bytes]:
        """Ascending, the order in which the store has them, oldest first."""
        return self.time_ms, orjson.dumps([self.origin, self.entry])[1:-1]


@dataclass(frozen=True)
class _Live:
    version: int
    partitions: tuple[int, ...]
    until_s: float


class RedisReader:
    """The read side of one model. One instance serves any number of concurrent requests."""

    def __init__(self, model: ReadModel, url: str, timeout_s: float = 2.0) -> None:
        """Nothing is sent before the first read, so an API starts without its store."""
        self.model = model
        self._url = url
        self._options: dict[str, Any] = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
        }
        self._client: Any = None
        self._live: _Live | None = None
        self._looking = asyncio.Lock()

    async def close(self) -> None:
        """Release the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def live_version(self) -> int:
        """The version that reads go to."""
        return (await self._now()).version

    async def positions(self) -> dict[tuple[str, int], Position]:
        """Topic and log partition → the position that reads from now on are true for, at least."""
        now = await self._now()
        names = [self._prefix(now, p) + "positions" for p in now.partitions]
        found = await self._pipelined([("hgetall", name) for name in names])
        return {
            (topic.decode(), partition): Position.decode(raw)
            for partition, stored in zip(now.partitions, found, strict=True)
            for topic, raw in stored.items()
        }

    async def position(self, topic: str, partition: int) -> Position | None:
        """The position of one log partition; None before its first write."""
        now = await self._now()
        [raw] = await self._pipelined([("hget", self._prefix(now, partition) + "positions", topic)])
        return None if raw is None else Position.decode(raw)

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        """Topic and partition → the first offset not folded yet; of those `topics` that deciders
        write, also of their command topics.
        """
        return applied(await self.positions(), *topics)

    async def bucket(
        self, table: str, bucket: Mapping[str, Any], partition: int | None = None
    ) -> pl.DataFrame:
        """All rows of a bucket (by the values of its columns), of one or all log partitions:
        the columns of the table and `_partition`.
        """
        return await self.buckets(table, [bucket], partition)

    async def buckets(
        self, table: str, buckets: Sequence[Mapping[str, Any]], partition: int | None = None
    ) -> pl.DataFrame:
        """All rows of these buckets, as `bucket`, in one round trip."""
        shape = self.model.table(table)
        if not isinstance(shape, Table):
            raise TypeError(f"{table} is no table: read it with top, rank, around or newest")
        now = await self._now()
        names = _names(buckets, {c: shape.key[c] for c in shape.bucket})
        wanted = [
            (name.encode(), p)
            for name in names
            for p in (now.partitions if partition is None else (partition,))
        ]
        found = await self._pipelined(
            [("hgetall", f"{self._prefix(now, p)}t:{table}:{name.decode()}") for name, p in wanted]
        )
        texts: list[bytes] = []
        sources: list[int] = []
        for (name, p), stored in zip(wanted, found, strict=True):
            texts += table_texts(name, stored, shape)
            sources += [p] * (len(texts) - len(sources))
        rows = decoded(texts, shape.columns)
        return rows.with_columns(pl.Series("_partition", sources, pl.Int32))

    async def row(
        self, table: str, key: Mapping[str, Any], partition: int
    ) -> dict[str, Any] | None:
        """The row of a key in a log partition; None where there is none. `bucket` for one row, for
        what is asked so often that making a frame of it would be most of its cost.
        """
        shape = self.model.table(table)
        if not isinstance(shape, Table) or len(shape.bucket) != len(shape.key):
            raise TypeError(f"{table} is no table whose buckets are single rows")
        now, name = await self._now(), _name(key, shape.key)
        [stored] = await self._pipelined(
            [("hgetall", f"{self._prefix(now, partition)}t:{table}:{name}")]
        )
        texts = list(table_texts(name.encode(), stored, shape))
        return row_of(texts[0], shape.columns) if texts else None

    async def newest(
        self,
        timeline: str,
        feeds: Sequence[Mapping[str, Any]],
        limit: int,
        before: Entry | None = None,
        partition: int | None = None,
    ) -> list[Entry]:
        """The newest entries of these feeds together, newest first and none twice, of one or all
        log partitions. `before` is the cursor: the last entry that is not wanted any more, which
        need not be there; so a page stays where it is when newer entries come.
        """
        shape = self.model.table(timeline)
        if not isinstance(shape, Timeline):
            raise TypeError(f"{timeline} is no timeline: read it with bucket, top, rank or around")
        now = await self._now()
        names = [
            f"{self._prefix(now, p)}f:{timeline}:{feed}"
            for feed in _names(feeds, shape.feed)
            for p in (now.partitions if partition is None else (partition,))
        ]
        most = "+inf" if before is None else f"({before.time_ms}"
        asked: list[tuple[Any, ...]] = [
            ("zrevrangebyscore", name, most, "-inf", 0, limit, True) for name in names
        ]
        if before is not None:  # entries of the cursor's millisecond, those behind it among them
            at = before.time_ms
            asked += [("zrangebyscore", name, at, at, None, None, True) for name in names]
        found = {
            Entry(int(time_ms), *orjson.loads(b"[" + text + b"]"))
            for entries in await self._pipelined(asked)
            for text, time_ms in entries
        }
        order = sorted(found, key=Entry.order, reverse=True)
        if before is not None:
            order = [entry for entry in order if entry.order() < before.order()]
        return order[:limit]

    async def count(self, ranking: str, board: Mapping[str, Any]) -> int:
        """Members of a board."""
        found = await self._pipelined(
            [("zcard", name) for name in await self._boards(ranking, board)]
        )
        return sum(found)

    async def top(
        self, ranking: str, board: Mapping[str, Any], k: int, start: int = 0
    ) -> list[Ranked]:
        """The members ranked `start + 1` to `start + k`. Reads `start + k` of every partition."""
        names = await self._boards(ranking, board)
        found = await self._pipelined(
            [("zrange", name, 0, start + k - 1, False, True) for name in names]
        )
        places = sorted((float(s), place) for part in found for place, s in part)
        return [_ranked(start + i, at) for i, at in enumerate(places[start : start + k], 1)]

    async def rank(self, ranking: str, board: Mapping[str, Any], member: str) -> Ranked | None:
        """The exact rank of a member over all log partitions; None when not on the board."""
        found = await self.around(ranking, board, member, 0)
        return found[0] if found else None

    async def around(
        self, ranking: str, board: Mapping[str, Any], member: str, n: int
    ) -> list[Ranked]:
        """The member with up to `n` neighbours on either side; empty when not on the board."""
        hashes = await self._boards(ranking, board, "m")
        stored = await self._pipelined([("hget", name, member) for name in hashes])
        own = sorted(_place(raw, member) for raw in stored if raw is not None)
        if not own:
            return []
        names = await self._boards(ranking, board)
        found = await asyncio.gather(*(self._ahead(name, own[0], n) for name in names))
        ahead = sum(count for count, _, _ in found)
        prior = sorted(p for _, before, _ in found for p in before)[-n:] if n else []
        after = sorted(p for _, _, rest in found for p in rest)[: n + 1]
        first = ahead - len(prior) + 1
        return [_ranked(first + i, p) for i, p in enumerate([*prior, *after])]

    async def percentile(self, ranking: str, board: Mapping[str, Any], member: str) -> float | None:
        """Percent of the other members that stand behind: 100 for the first, 0 for the last.
        Approximate while scores move, because rank and count are two reads.
        """
        found, count = await asyncio.gather(
            self.rank(ranking, board, member), self.count(ranking, board)
        )
        if found is None:
            return None
        return max(0.0, 100.0 * (count - found.rank) / max(1, count - 1))

    async def _now(self) -> _Live:
        if self._live is None or time.monotonic() >= self._live.until_s:
            async with self._looking:
                if self._live is None or time.monotonic() >= self._live.until_s:
                    self._live = await self._look()
        return self._live

    async def _look(self) -> _Live:
        until_s = time.monotonic() + LIVE_MS / 1000
        with translated():
            if self._client is None:
                self._client = await _connected(self._url, self._options)
            version = int(await self._client.get(keys.live(self.model.name)) or 1)
            known = await self._client.smembers(keys.partitions(self.model.name, version))
        return _Live(version, tuple(sorted(int(p) for p in known)), until_s)

    def _prefix(self, now: _Live, partition: int) -> str:
        return keys.prefix(self.model.name, now.version, partition)

    async def _boards(self, ranking: str, board: Mapping[str, Any], kind: str = "z") -> list[str]:
        """The keys of a board in all log partitions: its places ("z") or members ("m")."""
        shape = self.model.table(ranking)
        if not isinstance(shape, Ranking):
            raise TypeError(f"{ranking} is no ranking: read it with bucket")
        now = await self._now()
        name = _name(board, shape.board)
        return [f"{self._prefix(now, p)}{kind}:{ranking}:{name}" for p in now.partitions]

    async def _pipelined(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not commands:
            return []
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for command, *args in commands:
                    getattr(pipe, command)(*args)
                return list(await pipe.execute())

    async def _ahead(self, name: str, own: Place, n: int) -> tuple[int, list[Place], list[Place]]:
        args = (1, name, int(own[0]), own[1], n)
        with translated():
            try:
                found = await self._client.evalsha(_AHEAD.sha, *args)
            except NoScriptError:
                found = await self._client.eval(_AHEAD.source, *args)
        ahead, before, rest = found
        return ahead, _places(before), _places(rest)


Place = tuple[float, bytes]
"""−score and place: ascending, the order of a ranking."""


async def _connected(url: str, options: Mapping[str, Any]) -> Any:
    """A client of the server or Cluster at `url`."""
    client: Any = redis.asyncio.Redis.from_url(url, **options)
    try:
        info = await client.info("cluster")
    except BaseException:
        await client.aclose()
        raise
    if not info.get("cluster_enabled"):
        return client
    await client.aclose()
    return redis.asyncio.RedisCluster.from_url(url, **options)


def _name(values: Mapping[str, Any], columns: Mapping[str, Any]) -> str:
    """The text of a bucket or board; `KeyError` when its columns are not exactly those given."""
    return _names([values], columns)[0]


def _names(many: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]) -> list[str]:
    """The texts of buckets, as `_name`, at the price of one."""
    for values in many:
        if set(values) != set(columns):
            raise KeyError(f"give {sorted(columns)}, not {sorted(values)}")
    if not columns:
        return [""] * len(many)
    if all(map(plain, columns.values())):
        return [text_of(values[column] for column in columns) for values in many]
    frame = pl.DataFrame([dict(values) for values in many], schema=columns)
    texts: list[str] = encoded(frame, columns).to_list()
    return texts


def _place(stored: bytes, member: str) -> Place:
    score, reached = stored.decode().split(",")
    digits = str(int(reached) + keys.PLACE_SHIFT).zfill(keys.PLACE_DIGITS)
    return -float(score), (digits + member).encode()


def _places(flat: list[bytes]) -> list[Place]:
    return [(float(score), place) for place, score in zip(flat[::2], flat[1::2], strict=True)]


def _ranked(rank: int, at: Place) -> Ranked:
    score, place = at
    reached_ms = int(place[: keys.PLACE_DIGITS]) - keys.PLACE_SHIFT
    return Ranked(rank, place[keys.PLACE_DIGITS :].decode(), -int(score), reached_ms)
