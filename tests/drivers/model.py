"""The read model of the driver tests, rows for it, and how to look at what is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import polars as pl

from streams.runtime.position import Position
from streams.runtime.sink import (
    Changes,
    Delete,
    Rank,
    Ranking,
    RankMerge,
    ReadModel,
    Sink,
    Table,
    Unrank,
    Upsert,
    Write,
)

TOPIC = "ads.clicks.v1"
TOPIC_ID = "q0bzBUEnTWmiSCGn9CHV7g"

WINDOWS = Table(
    name="windows",
    key={"start_ms": pl.Int64, "campaign": pl.String},
    values={"clicks": pl.Int64, "spend": pl.UInt64, "note": pl.String},
    bucket=("start_ms",),
    time="start_ms",
)
"""Rows that are rewritten, kept for a while."""

EVENTS = Table(
    name="events",
    key={"offset": pl.Int64},
    values={
        "payload": pl.Binary,
        "flags": pl.List(pl.Int32),
        "ratio": pl.Float64,
        "ok": pl.Boolean,
        "at": pl.Datetime("ms", "UTC"),
    },
    append=True,
)
"""Identity rows in one bucket, with every kind of column."""

TABLES = (WINDOWS, EVENTS)

SCORES = Ranking(
    name="scores", board={"day_ms": pl.Int64, "game": pl.String}, member="player", time="day_ms"
)


def read_model(*, rankings: bool) -> ReadModel:
    """A read model with a name of its own, so that tests never meet in a store."""
    name = f"test-{uuid4().hex[:12]}"
    return ReadModel(name, (*TABLES, SCORES) if rankings else TABLES)


def at(offset: int, **more: Any) -> Position:
    """The position of a reader that has folded all below `offset`."""
    return Position(**{"topic_id": TOPIC_ID, "next_offset": offset, "low_offset": offset} | more)


def span(
    first: int | None,
    end: int,
    *changes: Changes,
    partition: int = 0,
    expire: dict[str, int] | None = None,
) -> Write:
    """The write that moves partition 0 from `first` (None: nothing stored) to `end`."""
    expected = None if first is None else at(first)
    return Write(TOPIC, partition, expected, at(end), changes, expire or {})


def windows(*rows: tuple[int, str, int], spend: int = 0, note: str | None = "") -> Upsert:
    """Upsert `(start_ms, campaign, clicks)` rows."""
    lines = [(*row, spend, note) for row in rows]
    return Upsert(WINDOWS, pl.DataFrame(lines, schema=WINDOWS.columns, orient="row"))


def no_windows(*keys: tuple[int, str]) -> Delete:
    """Delete the windows with these keys."""
    return Delete(WINDOWS, pl.DataFrame(list(keys), schema=WINDOWS.key, orient="row"))


def events(*offsets: int) -> Upsert:
    """The identity rows of these offsets."""
    epoch = datetime(2026, 1, 1, tzinfo=UTC)
    lines = [
        (o, bytes([o % 256, 0, 255]), [o, -o], o / 7, o % 2 == 0, epoch + timedelta(milliseconds=o))
        for o in offsets
    ]
    return Upsert(EVENTS, pl.DataFrame(lines, schema=EVENTS.columns, orient="row"))


def ranked(*rows: tuple[int, str, str, int, int], merge: RankMerge = RankMerge.SUM) -> Rank:
    """Merge `(day_ms, game, player, score, reached_ms)` rows."""
    return Rank(SCORES, merge, pl.DataFrame(list(rows), schema=SCORES.columns, orient="row"))


def unranked(*players: str) -> Unrank:
    """Remove these players from all boards."""
    return Unrank(SCORES, players)


def stored(
    sink: Sink, table: str = "windows", version: int = 1, partition: int | None = None
) -> list[tuple[Any, ...]]:
    """All rows of a table, sorted, with the partition last; a row that shows twice stays twice."""
    frames = list(sink.rows(version, table, partition))
    columns = [*sink.model.table(table).columns, "_partition"]
    for frame in frames:
        assert frame.columns == columns
        assert frame.schema["_partition"] == pl.Int32
    return sorted((r for f in frames for r in f.iter_rows()), key=repr)
