"""Reads of lines: one query over the hot and the cold tier.

**Who answers for what.** The hot tier forgets a line when its hour is before `expired_ms` of the
line's log partition, a time that depends on the log alone and is stored with the position. So per
partition p, with B(p) = `expired_ms`:

    hour_ms >= B(p)  hot      hour_ms < B(p)  cold

Nothing is counted twice, since an hour of a partition is asked of one tier only; nothing is
missed, since both tiers fold every line. B moves on while a read runs: it is looked at again
afterwards, and the read repeated where it has moved. The answer is true for the hot position, and
where cold has a part in it, for the lower of both.
"""

# ruff: noqa: S608 - conditions are made of constants, values are parameters

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from sinks.telemetry import HOUR_MS, LINES
from sinks.telemetry.query import FoundLine, LogQuery, Page, Span
from streams.runtime.sink import SinkUnavailable

if TYPE_CHECKING:
    from sinks.readers.clickhouse import ClickHouseReader
    from sinks.readers.s3 import S3Reader

Answer = TypeVar("Answer")
Applied = Mapping[tuple[str, int], int]
Borders = Mapping[int, int]
"""Log partition → the hour from which on the hot tier answers; absent: from the first."""
TRIES = 5
COLUMNS = ("line_id", "event_time", "nanos", "service", "stream", "level", "body", "trace_id",
           "span_id", "labels", "weight", "late", "_partition", "offset")  # fmt: skip
_SPAN = """
    hour_ms >= {first_hour:Int64} AND hour_ms < {to_ms:Int64}
    AND event_time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND event_time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND hour_ms >= transform(_partition, {parts:Array(Int32)}, {borders:Array(Int64)},
                             toInt64(-9223372036854775808))
"""


class LineReader:
    """Questions to every line. One instance serves any number of concurrent requests."""

    def __init__(self, hot: ClickHouseReader, cold: S3Reader | None) -> None:
        self._hot = hot
        self._cold = cold
        self.tiers = Tiers(hot, cold)

    async def close(self) -> None:
        """Release the connections."""
        await self._hot.close()
        if self._cold is not None:
            await self._cold.close()

    async def applied(self) -> Applied:
        """How far the hot tier is folded."""
        return {at: p.next_offset for at, p in (await self._hot.positions()).items()}

    async def needs_cold(self, span: Span) -> bool:
        """Whether the span reaches behind the hot tier."""
        return any(border > span.from_ms for border in (await self._borders()).values())

    async def search(self, query: LogQuery, span: Span, page: Page) -> list[FoundLine]:
        """The newest lines first. Raises `SinkRejected` past the limits of time or rows, and
        `SinkUnavailable` without an answer.
        """

        async def once(borders: Borders) -> list[FoundLine]:
            found = await asyncio.gather(
                self._search_hot(query, span, page, borders),
                self._search_cold(query, span, page, borders),
            )
            rows = pl.concat(found).sort(*_NEWEST, descending=True)
            rows = rows.unique("line_id", keep="first", maintain_order=True).head(page.limit)
            return [FoundLine(**row) for row in rows.rename({"_partition": "partition"}).to_dicts()]

        return await self._steady(once)

    async def since(
        self, query: LogQuery, after: Mapping[int, int], limit: int
    ) -> Sequence[FoundLine]:
        """Lines of the hot tier from these offsets on (log partition → first offset), in the
        order of each partition's log, whatever their event time: for following.
        """
        if not await self.applied():
            return []
        conditions, parameters = query.sql()
        sql = f"""
            SELECT {_SELECTED} FROM {{lines:Identifier}}
            WHERE {
            " AND ".join(
                [
                    "offset >= transform(_partition, {parts:Array(Int32)}, "
                    "{offsets:Array(Int64)}, toInt64(9223372036854775807))",
                    *conditions,
                ]
            )
        }
            ORDER BY _version, _partition, offset LIMIT {{limit:Int64}}
        """
        found = await self._hot.query(
            sql, parts=list(after), offsets=list(after.values()), limit=limit, **parameters
        )
        rows = _typed(found).rename({"_partition": "partition"})
        return [FoundLine(**row) for row in rows.to_dicts()]

    async def count(self, span: Span, step_ms: int, *, late: bool = False) -> pl.DataFrame:
        """Distinct lines by start, service and level: `start_ms, service, level, lines, weight`.
        With `late`, only those that no rollup has: that were late and never in time.
        """

        async def once(borders: Borders) -> pl.DataFrame:
            parts = await asyncio.gather(
                self._count_hot(span, step_ms, borders, late=late),
                self._count_cold(span, step_ms, borders, late=late),
            )
            by = ("start_ms", "service", "level")
            return pl.concat(parts).group_by(by).agg(pl.col("lines", "weight").sum()).sort(by)

        return await self._steady(once)

    async def _steady(self, once: Callable[[Borders], Awaitable[Answer]]) -> Answer:
        """The answer of `once` under borders that stood still meanwhile."""
        for _ in range(TRIES):
            borders = await self._borders()
            answer = await once(borders)
            if await self._borders() == borders:
                return answer
        raise SinkUnavailable("the hot tier forgets faster than it can be read")

    async def _borders(self) -> Borders:
        positions = await self._hot.positions()
        return {
            at: position.expired_ms[LINES.name]
            for (_, at), position in positions.items()
            if LINES.name in position.expired_ms
        }

    async def _search_hot(
        self, query: LogQuery, span: Span, page: Page, borders: Borders
    ) -> pl.DataFrame:
        if not await self.applied():
            return _EMPTY
        conditions, parameters = query.sql()
        if page.before is not None:
            conditions.append(
                "(event_time, nanos, line_id) < "
                "(fromUnixTimestamp64Milli({at:Int64}, 'UTC'), {nanos:Int32}, {id:String})"
            )
            at, nanos, line_id = page.before
            parameters |= {"at": at, "nanos": nanos, "id": line_id}
        sql = f"""
            SELECT {_SELECTED} FROM {{lines:Identifier}} FINAL
            WHERE {" AND ".join([_SPAN, *conditions])}
            ORDER BY event_time DESC, nanos DESC, line_id DESC
            LIMIT 1 BY line_id LIMIT {{limit:Int64}}
        """
        spanned = _spanned(span, borders)
        found = await self._hot.query(sql, limit=page.limit, **spanned, **parameters)
        return _typed(found).with_columns(pl.lit("hot").alias("tier"))

    async def _search_cold(
        self, query: LogQuery, span: Span, page: Page, borders: Borders
    ) -> pl.DataFrame:
        lines = await self._cold_lines(span, borders)
        if lines is None or self._cold is None:
            return _EMPTY
        lines = lines.filter(query.expression())
        if page.before is not None:
            lines = lines.filter(_before(page.before))
        newest = lines.sort(*_NEWEST, descending=True).unique(
            "line_id", keep="first", maintain_order=True
        )
        found = await self._cold.collect(newest.head(page.limit))
        return found.select(_EMPTY.columns).cast(_EMPTY.schema)

    async def _cold_lines(self, span: Span, borders: Borders) -> pl.LazyFrame | None:
        """The lines of the span that the cold tier answers for; None where that is none."""
        stop = max(borders.values(), default=span.from_ms)
        if self._cold is None or stop <= span.from_ms:
            return None
        hours = (span.from_ms // HOUR_MS * HOUR_MS, min(stop, span.to_ms))
        lines = await self._cold.scan(LINES.name, between={"hour_ms": hours})
        at = pl.col("event_time").dt.epoch("ms")
        border = pl.col("_partition").replace_strict(
            dict(borders) or {-1: 0}, default=None, return_dtype=pl.Int64
        )
        mine = at.is_between(span.from_ms, span.to_ms, closed="left") & (pl.col("hour_ms") < border)
        return lines.filter(mine).with_columns(at.alias("event_time"), pl.lit("cold").alias("tier"))

    async def _count_hot(
        self, span: Span, step_ms: int, borders: Borders, *, late: bool
    ) -> pl.DataFrame:
        if not await self.applied():
            return _NONE_COUNTED
        only = "line_id IN (SELECT line_id FROM {lines:Identifier} WHERE late AND " + _SPAN + ")"
        having = "HAVING min(late)" if late else ""
        sql = f"""
            SELECT intDiv(at, {{step:Int64}}) * {{step:Int64}} AS start_ms, service, level,
                   toInt64(count()) AS lines, toInt64(sum(weight)) AS weight
            FROM (
                SELECT line_id, service, any(assumeNotNull(level)) AS level,
                       any(assumeNotNull(weight)) AS weight,
                       toUnixTimestamp64Milli(any(event_time)) AS at
                FROM {{lines:Identifier}} FINAL WHERE {_SPAN} AND {only if late else "1"}
                GROUP BY line_id, service, _partition {having}
            ) GROUP BY start_ms, service, level
        """
        found = await self._hot.query(sql, step=step_ms, **_spanned(span, borders))
        return found.select(_NONE_COUNTED.columns).cast(_NONE_COUNTED.schema)

    async def _count_cold(
        self, span: Span, step_ms: int, borders: Borders, *, late: bool
    ) -> pl.DataFrame:
        lines = await self._cold_lines(span, borders)
        if lines is None or self._cold is None:
            return _NONE_COUNTED
        if late:
            suspects = lines.filter("late").select("line_id", "_partition").unique()
            lines = lines.join(suspects, on=["line_id", "_partition"], how="semi")
        distinct = lines.group_by("line_id", "service", "_partition").agg(
            pl.col("level", "weight", "event_time").first(), pl.col("late").min()
        )
        if late:
            distinct = distinct.filter("late")
        start = pl.col("event_time").floordiv(step_ms).mul(step_ms).alias("start_ms")
        counted = distinct.group_by(start, "service", "level").agg(
            pl.len().alias("lines"), pl.col("weight").sum()
        )
        found = await self._cold.collect(counted)
        return found.select(_NONE_COUNTED.columns).cast(_NONE_COUNTED.schema)


@dataclass(frozen=True)
class Tiers:
    """Both tiers as one source of positions."""

    hot: ClickHouseReader
    cold: S3Reader | None

    async def applied(self) -> Applied:
        """How far both are folded: what a read is true for that needs both."""
        hot = {at: p.next_offset for at, p in (await self.hot.positions()).items()}
        if self.cold is None:
            return hot
        cold = {at: p.next_offset for at, p in (await self.cold.positions()).items()}
        return {at: min(offset, cold.get(at, 0)) for at, offset in hot.items()}


_SELECTED = ", ".join(
    "toUnixTimestamp64Milli(event_time) AS at_ms" if c == "event_time" else f"`{c}`"
    for c in COLUMNS
)
_NEWEST = ("event_time", "nanos", "line_id")
_EMPTY = pl.DataFrame(
    schema={
        **{c: LINES.columns.get(c, pl.Int32) for c in COLUMNS},
        "event_time": pl.Int64,
        "tier": pl.String,
    }
)
_NONE_COUNTED = pl.DataFrame(
    schema={"start_ms": pl.Int64, "service": pl.String, "level": pl.String, "lines": pl.Int64,
            "weight": pl.Int64}
)  # fmt: skip


def _typed(found: pl.DataFrame) -> pl.DataFrame:
    rows = found.rename({"at_ms": "event_time"}).select(COLUMNS)
    return rows.cast(pl.Schema({c: _EMPTY.schema[c] for c in COLUMNS}))


def _spanned(span: Span, borders: Borders) -> dict[str, Any]:
    return {
        "from_ms": span.from_ms,
        "to_ms": span.to_ms,
        "first_hour": span.from_ms // HOUR_MS * HOUR_MS,
        "parts": list(borders) or [-1],
        "borders": list(borders.values()) or [0],
    }


def _before(cursor: tuple[int, int, str]) -> pl.Expr:
    at, nanos, line_id = cursor
    same = pl.col("event_time") == at
    earlier = (pl.col("nanos") < nanos) | (
        (pl.col("nanos") == nanos) & (pl.col("line_id") < line_id)
    )
    return (pl.col("event_time") < at) | (same & earlier)
