"""Telemetry's part of the demo: real log lines, their recount, and what is asked of them.

As everywhere in the demo the recount uses nothing of the product: the rules are written down again
from their descriptions. A line is late when its minute ended an allowed lateness or more before
the watermark of its partition; a repeat in time is a duplicate; everything else is applied. All
distinct lines are kept, late or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import polars as pl

from connectors.telemetry.parse import Origin
from connectors.telemetry.parse import line as parsed
from infra.demo.compare import Check, fates_of, late_of, opened, stored_in, tables_of
from infra.demo.questions import Question, span_of
from infra.demo.recount import DAY, HOUR, MINUTE, Log
from infra.demo.sources import RECORD, Traffic
from schemas.telemetry.events import LOG_LINE, LOGS
from streams.runtime.settings import Settings

LATENESS = 6 * HOUR
READ_NS = int(datetime(2024, 6, 1, tzinfo=UTC).timestamp()) * 10**9
"""When the lines of services are taken to have been read: some of their times have no year."""
LOG_MOVED = timedelta(weeks=784)
"""The access log of 2009-04-22 is told as 2024-05-01, three weeks before the last other line."""
BY = ("service", "level")


def from_service_logs(texts: pl.DataFrame) -> Traffic:
    """Lines as the parsers read them, service by service. A line without a time is a continuation
    and has that of the line before it, else of the line behind it.
    """
    read = [
        parsed(text, Origin(service), READ_NS, f"{service}-{number}").row()
        for service, number, text in texts.iter_rows()
    ]
    rows = pl.DataFrame(read, schema_overrides={"trace_id": pl.String, "span_id": pl.String})
    timed = pl.when(pl.col("event_time") != READ_NS // 10**6).then("event_time")
    rows = rows.with_columns(timed.forward_fill().backward_fill().over("service"))
    untimed = sum(row["event_time"] == READ_NS // 10**6 for row in read)
    services = texts["service"].n_unique()
    about = f"{len(read):,} lines of {services} services, {untimed:,} of them without a time"
    return Traffic("service-logs", LOGS, _events(rows), about)


def from_access_log(requests: pl.DataFrame) -> Traffic:
    """Requests → lines of the service `web`; 5xx are errors, 4xx warnings."""
    status = pl.col("status")
    rows = requests.select(
        pl.format("web-{}", "line").alias("line_id"),
        pl.lit("web").alias("stream"),
        pl.lit("web").alias("service"),
        pl.when(status >= 500)
        .then(pl.lit("ERROR"))
        .when(status >= 400)
        .then(pl.lit("WARN"))
        .otherwise(pl.lit("INFO"))
        .alias("level"),
        (pl.col("time") + LOG_MOVED).dt.epoch("ms").alias("event_time"),
        pl.lit(0).alias("nanos"),
        pl.format("{} {} {}", "method", "path", "status").alias("body"),
        pl.lit(None, pl.String).alias("trace_id"),
        pl.lit(None, pl.String).alias("span_id"),
        pl.concat_str(pl.lit('{"status":"'), "status", pl.lit('"}')).alias("labels"),
        pl.lit(1).alias("weight"),
    )  # fmt: skip
    about = f"{rows.height:,} requests of a web server"
    return Traffic("access-log", LOGS, _events(rows), about)


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    typed = rows.select(
        pl.col(name).cast(dtype).alias(name) for name, dtype in LOG_LINE.dtypes.items()
    )
    return typed.with_columns(pl.lit(LOG_LINE.name).alias(RECORD))


class Lines:
    """The recount of `telemetry.logs`."""

    def __init__(self) -> None:
        self._log = Log()
        self.fates: Counter[str] = Counter()
        self._judged: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> Counter[str]:
        """Rows in the order of delivery; returns them by fate."""
        times = rows["event_time"].dt.epoch("ms")
        fates = [
            self._fate(*row) for row in zip(times, rows["stream"], rows["_repeat"], strict=True)
        ]
        kept = rows.select(*BY, "line_id", "weight", "_repeat").with_columns(
            times.alias("time"), pl.Series("fate", fates, pl.String)
        )
        self._judged.append(kept)
        found = Counter(fates)
        self.fates += found
        return found

    def _fate(self, time: int, stream: str, repeat: bool) -> str:
        watermark = self._log.append(stream, time)
        if time - time % MINUTE + MINUTE + LATENESS <= watermark:
            return "late"
        return "duplicate" if repeat else "applied"

    @property
    def judged(self) -> pl.DataFrame:
        """All rows with their fates."""
        return pl.concat(self._judged)

    @property
    def distinct(self) -> pl.DataFrame:
        """Each line once."""
        return self.judged.filter(~pl.col("_repeat"))

    def rolled(self, size: int, start: str) -> pl.DataFrame:
        """Applied lines by service, level and start."""
        return _rolled(self.judged.filter(pl.col("fate") == "applied"), size, start)


def _rolled(rows: pl.DataFrame, size: int, start: str) -> pl.DataFrame:
    at = (pl.col("time") // size * size).alias(start)
    weight = pl.col("weight").cast(pl.Int64).sum()
    return rows.group_by(*BY, at).agg(pl.len().cast(pl.Int64).alias("lines"), weight)


def checks(settings: Settings, recount: Lines) -> Iterator[Check]:
    """Rollups, both tiers, and the late side output."""
    with opened("telemetry-rollups", settings) as (projection, sink):
        for table, start, size in (("minutes", "minute_ms", MINUTE), ("hours", "hour_ms", HOUR)):
            key = (*BY, start)
            stored = stored_in(sink, table, lambda part: part)
            stored = stored.group_by(key).agg(pl.col("lines", "weight").sum())
            expected = recount.rolled(size, start)
            yield from tables_of(
                f"telemetry-rollups {table}", expected, stored, key, ("lines", "weight")
            )
        yield from fates_of("telemetry-rollups", recount.fates, sink)
        yield late_of(settings, projection.topic, recount.fates["late"])
    distinct = recount.distinct["line_id"].n_unique()
    for agent in ("telemetry-logs", "telemetry-cold"):
        with opened(agent, settings) as (_, sink):
            yield from fates_of(agent, recount.fates, sink)
            if agent == "telemetry-cold":
                ids = stored_in(sink, "lines", lambda part: part.select("line_id"))
                yield Check(agent, "distinct lines", distinct, ids["line_id"].n_unique())


def questions(recount: Lines) -> list[Question]:
    """The proof of the counts, the lines of each service, and a search that needs both tiers."""
    lines = recount.distinct
    first = int(str(lines["time"].min())) // DAY * DAY
    last = int(str(lines["time"].max())) // DAY * DAY + DAY
    services = dict(lines.group_by("service").len().iter_rows())
    failed = lines.filter(pl.col("level").is_in(["ERROR", "FATAL"]))
    newest = failed.sort("time", descending=True).head(5)["time"].to_list()
    oldest = lines.filter(pl.col("service") == "web")
    return [
        Question(
            "every line, counted by the stream and counted again from both tiers",
            "/v1/telemetry/logs/audit",
            span_of(first, last),
            (lines.height, 0),
            lambda found: (found["raw"], found["difference"]),
        ),
        Question(
            "lines of each service",
            "/v1/telemetry/logs/counts",
            {**span_of(first, last), "step": "hour"},
            services,
            _by_service,
        ),
        Question(
            "the newest errors",
            "/v1/telemetry/logs",
            {**span_of(first, last), "q": "level:>=error", "limit": 5},
            newest,
            lambda found: [line["event_time"] for line in found["lines"]],
        ),
        Question(
            "requests of the web server, three weeks before the newest line",
            "/v1/telemetry/logs",
            {**span_of(first, last), "service": "web", "limit": 3},
            oldest.sort("time", descending=True).head(3)["time"].to_list(),
            lambda found: [line["event_time"] for line in found["lines"]],
        ),
    ]


def _by_service(found: list[dict[str, object]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in found:
        total[str(one["service"])] += int(str(one["lines"]))
    return dict(total)
