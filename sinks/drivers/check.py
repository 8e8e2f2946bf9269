"""What every driver refuses before it touches its store, in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from streams.runtime.sink import (
    Delete,
    Insert,
    Rank,
    Ranking,
    ReadModel,
    Shape,
    SinkRejected,
    Timeline,
    Unrank,
    Upsert,
    Withdraw,
    Write,
)

SCORE_MAX = 2**53 - 1
"""Scores saturate at ± this: the largest integers a double (a Redis score) holds exactly."""

REACHED_MAX = 2**52 - 1
"""`reached_ms` lies within ± this (142,000 years), so that a double can shift it by 2**52."""


def check(model: ReadModel, write: Write) -> None:
    """Raise `SinkRejected` naming table and column when a change does not fit the model.

    Types have to be exactly those of the table; keys, lists and their elements are never null;
    floats are finite; a Rank holds a board and member once. Nothing is cast: a cast that loses
    digits would be silent.
    """
    for change in write.changes:
        match change:
            case Upsert(table, rows):
                _owned(model, table)
                _typed(table.name, rows, table.columns)
                _whole(table.name, rows, table.key)
            case Delete(table, rows):
                _owned(model, table)
                _typed(table.name, rows, table.key)
                _whole(table.name, rows, table.key)
            case Rank(ranking, _, rows):
                _owned(model, ranking)
                _typed(ranking.name, rows, ranking.columns)
                _whole(ranking.name, rows, ranking.columns)
                _ranked(ranking, rows)
            case Unrank(ranking, _):
                _owned(model, ranking)
            case Insert(timeline, rows):
                _owned(model, timeline)
                _typed(timeline.name, rows, timeline.columns)
                _whole(timeline.name, rows, timeline.columns)
                _timed(timeline, rows)
            case Withdraw(timeline, rows):
                _owned(model, timeline)
                wanted = {**timeline.feed, timeline.origin: pl.String}
                _typed(timeline.name, rows, wanted)
                _whole(timeline.name, rows, wanted)
    for name in write.expire_before_ms:
        if model.table(name).time is None:
            raise SinkRejected(f"{name} has no time column, so its rows cannot expire")


def _owned(model: ReadModel, table: Shape) -> None:
    if table not in model.tables:
        raise SinkRejected(f"{table.name} is not a table of {model.name}")


def _typed(name: str, rows: pl.DataFrame, columns: Mapping[str, Any]) -> None:
    if set(rows.columns) != set(columns):
        raise SinkRejected(f"{name} has columns {sorted(columns)}, not {sorted(rows.columns)}")
    for column, dtype in columns.items():
        if rows.schema[column] != dtype:
            raise SinkRejected(f"{name}.{column} is {dtype}, not {rows.schema[column]}")
        if rows.schema[column].is_float() and not rows[column].drop_nulls().is_finite().all():
            raise SinkRejected(f"{name}.{column} holds a number that is not finite")
        if isinstance(dtype, pl.List) and _holes(rows[column]):
            raise SinkRejected(f"{name}.{column} holds a null list, or a null in a list")


def _holes(lists: pl.Series) -> bool:
    whole = lists.list.drop_nulls().list.len() == lists.list.len()
    return bool(lists.null_count()) or not whole.all()


def _whole(name: str, rows: pl.DataFrame, columns: Mapping[str, Any]) -> None:
    for column in columns:
        if rows[column].null_count():
            raise SinkRejected(f"{name}.{column} is part of the key and holds a null")


def _ranked(ranking: Ranking, rows: pl.DataFrame) -> None:
    if rows.select(*ranking.board, ranking.member).is_duplicated().any():
        raise SinkRejected(f"{ranking.name} holds a board and member twice in one change")
    if not rows["reached_ms"].is_between(-REACHED_MAX, REACHED_MAX).all():
        raise SinkRejected(f"{ranking.name}.reached_ms lies beyond ±2**52 ms")


def _timed(timeline: Timeline, rows: pl.DataFrame) -> None:
    if not rows["time_ms"].is_between(-REACHED_MAX, REACHED_MAX).all():
        raise SinkRejected(f"{timeline.name}.time_ms lies beyond ±2**52 ms")
