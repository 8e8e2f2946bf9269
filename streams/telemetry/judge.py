"""The fate of a row that has an identity: late, repeated, or applied.

Late is judged by the minute: a row whose minute had closed, with the allowed lateness, before it
came is counted in no rollup, of the minute or of the hour. It is stored all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from streams.runtime.batch import WATERMARK
from streams.runtime.outcome import Fate
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.watermark import milliseconds

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
FATE = "fate"
TIME_MS = "time_ms"
HOUR = pl.col(TIME_MS).floordiv(HOUR_MS).mul(HOUR_MS).alias("hour_ms")
MINUTE = pl.col(TIME_MS).floordiv(MINUTE_MS).mul(MINUTE_MS).alias("minute_ms")


@dataclass(frozen=True)
class Judge:
    """What is remembered to tell repeats; immutable."""

    seen: SeenIds
    lateness_ms: int

    @classmethod
    def start(cls, identity: str, content: tuple[str, ...], lateness_ms: int) -> Judge:
        """A judge that has seen nothing. Rows with one `identity` and `content` are one."""
        return cls(SeenIds(identity, "event_time", content, MINUTE_MS + lateness_ms), lateness_ms)

    def judge(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[Judge, pl.DataFrame]:
        """The rows with `time_ms`, `fate` and `conflict`: the identity was used for other content
        before. A conflict is applied; what becomes of it is the caller's to say.
        """
        rows = rows.with_columns(milliseconds(rows["event_time"]).alias(TIME_MS))
        closes = pl.col(TIME_MS).floordiv(MINUTE_MS).add(1).mul(MINUTE_MS) + self.lateness_ms
        late = rows.select(closes <= pl.col(WATERMARK)).to_series()
        seen, verdicts = self.seen.check(rows.filter(~late), watermark_ms)
        timely = rows.filter(~late).with_columns(
            pl.when(verdicts == Verdict.DUPLICATE)
            .then(pl.lit(Fate.DUPLICATE.value))
            .otherwise(pl.lit(Fate.APPLIED.value))
            .alias(FATE),
            (verdicts == Verdict.CONFLICT).alias("conflict"),
        )
        behind = rows.filter(late).with_columns(
            pl.lit(Fate.LATE.value).alias(FATE), pl.lit(value=False).alias("conflict")
        )
        together = pl.concat([timely, behind]) if behind.height else timely
        return replace(self, seen=seen), together.sort("_offset") if behind.height else together

    def fate(self, judged: pl.DataFrame) -> dict[str, Any]:
        """What an `Outcome` says of the judged rows: counts, and how long they matter."""
        counts: Mapping[str, int] = dict(judged.group_by(FATE).len().iter_rows())
        newest = judged.filter(pl.col(FATE) != Fate.LATE)[TIME_MS].max()
        until = newest + MINUTE_MS + self.lateness_ms if isinstance(newest, int) else None
        return {
            "counts": counts,
            "open_until_ms": until,
            "open_from_offset": self.seen.open_from_offset,
        }
