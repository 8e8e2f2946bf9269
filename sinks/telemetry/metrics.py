"""Reads of series and samples: what Prometheus asks for to answer PromQL.

Matchers mean what they mean in Prometheus: a label that a series has not is empty, and patterns
are RE2 and match whole values; ClickHouse's are the same library.
"""

# ruff: noqa: S608 - conditions are made of constants, values are parameters

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import orjson
import polars as pl

from sinks.telemetry import DAY_MS, HOUR_MS
from sinks.telemetry.lines import Applied
from sinks.telemetry.query import Span
from sinks.telemetry.rollups import STEPS, RollupReader, Step
from streams.runtime.sink import SinkRejected

if TYPE_CHECKING:
    from sinks.readers.clickhouse import ClickHouseReader

NAME = "__name__"
LINES_METRIC = "telemetry_log_lines"
"""The rollup of lines as a metric: stored lines in the minute that begins at the sample's time."""
SERIES_MAX = 50_000
Operator = Literal["=", "!=", "=~", "!~"]


@dataclass(frozen=True)
class Matcher:
    """`name operator "value"`."""

    name: str
    operator: Operator
    value: str


@dataclass(frozen=True)
class FoundSeries:
    """A series, with the name among its labels, and its samples by time; None ends it."""

    labels: Mapping[str, str]
    times_ms: Sequence[int]
    values: Sequence[float | None]


@dataclass(frozen=True)
class Measure:
    """What a series was in a minute or an hour."""

    start_ms: int
    count: int
    sum: float
    min: float
    max: float
    last: float


_LATE = """
    SELECT series_id, intDiv(at, {step:Int64}) * {step:Int64} AS start_ms,
           toInt64(count()) AS count, sumKahan(was) AS sum, min(was) AS min, max(was) AS max,
           argMax(was, at) AS last, max(at) AS last_ms
    FROM (
        SELECT series_id, toUnixTimestamp64Milli(event_time) AS at, any(value) AS was
        FROM {samples:Identifier} FINAL
        WHERE hour_ms >= {first_hour:Int64} AND hour_ms < {to_ms:Int64}
          AND series_id IN {ids:Array(String)}
          AND event_time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
          AND event_time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
        GROUP BY series_id, event_time HAVING min(late)
    ) WHERE was IS NOT NULL GROUP BY series_id, start_ms
"""


class MetricReader:
    """Questions to series and samples. One instance serves any number of concurrent requests."""

    def __init__(
        self, samples: ClickHouseReader, measures: ClickHouseReader, lines: RollupReader
    ) -> None:
        self._samples = samples
        self._measures = measures
        self._lines = lines

    async def close(self) -> None:
        """Release the connections."""
        await self._samples.close()
        await self._measures.close()

    async def applied(self) -> Applied:
        """How far the samples are folded."""
        return {at: p.next_offset for at, p in (await self._samples.positions()).items()}

    async def declared(self) -> dict[str, dict[str, int]]:
        """Metric → series → time of its last declaration, of the last day of the log's time."""
        if not await self.applied():
            return {}
        found = await self._samples.query(
            "SELECT name, series_id, assumeNotNull(declared_ms) AS declared_ms "
            "FROM {series:Identifier} FINAL WHERE declared_ms > "
            f"(SELECT max(declared_ms) FROM {{series:Identifier}}) - {DAY_MS} "
            f"ORDER BY declared_ms DESC LIMIT {SERIES_MAX}"
        )
        known: dict[str, dict[str, int]] = defaultdict(dict)
        for name, series_id, declared_ms in found.iter_rows():
            known[name][series_id] = declared_ms
        return known

    async def cardinality(self, limit: int) -> dict[str, int]:
        """The metrics with the most series."""
        if not await self.applied():
            return {}
        found = await self._samples.query(
            "SELECT name, toInt64(count()) AS series FROM {series:Identifier} FINAL GROUP BY name "
            "ORDER BY series DESC, name LIMIT {limit:Int64}",
            limit=limit,
        )
        return dict(found.iter_rows())

    async def select(self, matchers: Sequence[Matcher], span: Span) -> list[FoundSeries]:
        """Series that all matchers hold for, with their samples in the span (both ends are in).

        Raises `SinkRejected` for a bad pattern, too many series or too many samples.
        """
        if any(m.name == NAME and m.value == LINES_METRIC and m.operator == "=" for m in matchers):
            return await self._line_counts(matchers, span)
        named = await self._series(matchers)
        if not named:
            return []
        found = await self._samples.query(
            """
            SELECT series_id, toUnixTimestamp64Milli(event_time) AS at, value
            FROM {samples:Identifier} FINAL
            WHERE hour_ms >= {first_hour:Int64} AND hour_ms <= {to_ms:Int64}
              AND series_id IN {ids:Array(String)}
              AND event_time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
              AND event_time <= fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            ORDER BY series_id, event_time, late LIMIT 1 BY series_id, event_time
            """,
            ids=list(named), from_ms=span.from_ms, to_ms=span.to_ms,
            first_hour=span.from_ms // HOUR_MS * HOUR_MS,
        )  # fmt: skip
        return [
            FoundSeries(named[str(series_id)], part["at"].to_list(), part["value"].to_list())
            for (series_id,), part in found.group_by("series_id", maintain_order=True)
        ]

    async def measures(
        self, matchers: Sequence[Matcher], span: Span, step: Step
    ) -> list[tuple[Mapping[str, str], list[Measure]]]:
        """What each series was, per minute or hour that begins in the span: as the stream measured,
        and what came too late for that.
        """
        named = await self._series(matchers)
        if not named or not await self._measures.applied():
            return []
        start = "minute_ms" if step == "minute" else "hour_ms"
        asked = {
            "ids": list(named), "from_ms": span.from_ms, "to_ms": span.to_ms,
            "first_hour": span.from_ms // HOUR_MS * HOUR_MS,
        }  # fmt: skip
        timely = await self._measures.query(
            f"""
            SELECT series_id, {start} AS start_ms, count, sum, min, max, last, last_ms
            FROM {{{step}s:Identifier}} FINAL
            WHERE hour_ms >= {{first_hour:Int64}} AND hour_ms < {{to_ms:Int64}}
              AND series_id IN {{ids:Array(String)}}
              AND {start} >= {{from_ms:Int64}} AND {start} < {{to_ms:Int64}}
            """,
            **asked,
        )
        late = await self._samples.query(_LATE, step=STEPS[step], **asked)
        found = _together(timely, late)
        return [
            (named[str(series_id)], [Measure(*row[1:]) for row in part.iter_rows()])
            for (series_id,), part in found.group_by("series_id", maintain_order=True)
        ]

    async def _series(self, matchers: Sequence[Matcher]) -> dict[str, dict[str, str]]:
        """Series id → labels with the name."""
        if not await self.applied():
            return {}
        conditions, parameters = _conditions(matchers)
        found = await self._samples.query(
            "SELECT series_id, name, labels FROM {series:Identifier} FINAL "
            f"WHERE {' AND '.join(conditions) or '1'} LIMIT {SERIES_MAX + 1}",
            **parameters,
        )
        if found.height > SERIES_MAX:
            raise SinkRejected(f"more than {SERIES_MAX} series match")
        return {s: {NAME: name, **orjson.loads(labels)} for s, name, labels in found.iter_rows()}

    async def _line_counts(self, matchers: Sequence[Matcher], span: Span) -> list[FoundSeries]:
        minutes = Span(-(-span.from_ms // STEPS["minute"]) * STEPS["minute"], span.to_ms + 1)
        counts = await self._lines.counts(minutes, "minute")
        if counts.is_empty():
            return []
        rest = [m for m in matchers if m.name != NAME]
        series = [
            FoundSeries(
                {NAME: LINES_METRIC, "service": str(service), "level": str(level)},
                part["start_ms"].to_list(),
                part["lines"].cast(pl.Float64).to_list(),
            )
            for (service, level), part in counts.sort("start_ms").group_by(
                "service", "level", maintain_order=True
            )
        ]
        return [one for one in series if all(_holds(one.labels, m) for m in rest)]


def _together(timely: pl.DataFrame, late: pl.DataFrame) -> pl.DataFrame:
    """Measures of the same series and start as one, in order: `series_id, start_ms` and the
    fields of `Measure`.
    """
    by = ["series_id", "start_ms"]
    whole = {"count": pl.Int64, "sum": pl.Float64, "min": pl.Float64, "max": pl.Float64,
             "last": pl.Float64, "last_ms": pl.Int64}  # fmt: skip
    shape = pl.Schema({"series_id": pl.String, "start_ms": pl.Int64, **whole})
    both = pl.concat([frame.select(*shape).cast(shape) for frame in (timely, late)])
    merged = both.group_by(by).agg(
        pl.col("count", "sum").sum(),
        pl.col("min").min(),
        pl.col("max").max(),
        pl.col("last").sort_by("last_ms").last(),
    )
    return merged.sort(by)


def _conditions(matchers: Sequence[Matcher]) -> tuple[list[str], dict[str, Any]]:
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    for n, matcher in enumerate(matchers):
        column = f"JSONExtractString(labels, {{n{n}:String}})"
        if matcher.name == NAME:
            column = "name"
        else:
            parameters[f"n{n}"] = matcher.name
        pattern = matcher.operator in {"=~", "!~"}
        parameters[f"v{n}"] = f"^(?s:{matcher.value})$" if pattern else matcher.value
        test = f"match({column}, {{v{n}:String}})" if pattern else f"{column} = {{v{n}:String}}"
        conditions.append(test if matcher.operator in {"=", "=~"} else f"NOT {test}")
    return conditions, parameters


def _holds(labels: Mapping[str, str], matcher: Matcher) -> bool:
    """One matcher on labels at hand. Polars' patterns are those of RE2, too."""
    value = labels.get(matcher.name, "")
    match matcher.operator:
        case "=":
            return value == matcher.value
        case "!=":
            return value != matcher.value
    found = bool(pl.Series([value]).str.contains(f"^(?s:{matcher.value})$")[0])
    return found if matcher.operator == "=~" else not found
