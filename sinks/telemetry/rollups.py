"""Reads of the rollups of lines: what was counted in time, and what came late, together.

Late lines are in no rollup; they are marked where they are stored, so that the sum of both is the
number of lines there are, however late some of them came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from sinks.telemetry import HOUR_MS
from sinks.telemetry.lines import Applied, LineReader
from sinks.telemetry.query import Span
from streams.runtime.position import Position

if TYPE_CHECKING:
    from sinks.readers.clickhouse import ClickHouseReader

Step = Literal["minute", "hour"]
MINUTE_MS = 60_000
STEPS: Mapping[Step, int] = {"minute": MINUTE_MS, "hour": HOUR_MS}
BY = ["start_ms", "service", "level"]
_COUNTED = """
    SELECT {start} AS start_ms, service, level, sum(assumeNotNull(lines)) AS lines,
           sum(assumeNotNull(weight)) AS weight
    FROM {{{table}:Identifier}} FINAL
    WHERE hour_ms >= {{first_hour:Int64}} AND hour_ms < {{to_ms:Int64}}
      AND {start} >= {{from_ms:Int64}} AND {start} < {{to_ms:Int64}}
    GROUP BY start_ms, service, level
"""


@dataclass(frozen=True)
class Audit:
    """The same lines counted three ways, at about the same positions; `start_ms, service, level,
    lines, weight` each.
    """

    rollups: int
    late: int
    raw: int


class RollupReader:
    """Counts of lines. One instance serves any number of concurrent requests."""

    def __init__(self, rollups: ClickHouseReader, lines: LineReader) -> None:
        self._rollups = rollups
        self._lines = lines

    async def close(self) -> None:
        """Release the connections."""
        await self._rollups.close()

    async def applied(self) -> Applied:
        """How far the rollups and the lines are folded: what came late is from the latter."""
        rolled, lines = await asyncio.gather(self._rollups.positions(), self._lines.applied())
        return {at: min(p.next_offset, lines.get(at, 0)) for at, p in rolled.items() if at in lines}

    async def counts(self, span: Span, step: Step) -> pl.DataFrame:
        """Lines by start, service and level (`start_ms, service, level, lines, weight`), in whole
        steps that begin in the span, whenever they came.
        """
        timely, late = await asyncio.gather(
            self.timely(span, step), self._lines.count(span, STEPS[step], late=True)
        )
        both = pl.concat([timely, late.select(timely.columns)])
        return both.group_by(BY).agg(pl.col("lines", "weight").sum()).sort(BY)

    async def timely(self, span: Span, step: Step) -> pl.DataFrame:
        """What came in time, as the stream counted."""
        empty = {"start_ms": pl.Int64, "service": pl.String, "level": pl.String,
                 "lines": pl.Int64, "weight": pl.Int64}  # fmt: skip
        if not await self._rollups.applied():
            return pl.DataFrame(schema=empty)
        start = "minute_ms" if step == "minute" else "hour_ms"
        found = await self._rollups.query(
            _COUNTED.format(start=start, table=f"{step}s"),
            from_ms=span.from_ms,
            to_ms=span.to_ms,
            first_hour=span.from_ms // HOUR_MS * HOUR_MS,
        )
        return found.select(*empty).cast(pl.Schema(empty))

    async def audit(self, span: Span) -> Audit:
        """Whole minutes of a span: counted by the stream, come late, and counted again."""
        timely, late, raw = await asyncio.gather(
            self.timely(span, "minute"),
            self._lines.count(span, MINUTE_MS, late=True),
            self._lines.count(span, MINUTE_MS),
        )
        return Audit(*(int(frame["lines"].sum()) for frame in (timely, late, raw)))

    async def positions(self) -> dict[int, Position]:
        """Log partition → the position of the rollups."""
        return {at: p for (_, at), p in (await self._rollups.positions()).items()}
