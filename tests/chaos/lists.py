"""Named lists, appended to by a decider and read from a projection: what list-append checks need.

A group of lists has one writer. An append puts one value on several lists of its group at once;
some values are refused. A read answers all lists of a group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from api.auth import READ, WRITE, requires
from api.commands import AskedDep, ask
from api.reads import fresh
from api.services import ServicesDep
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.decider.records import CONTROL_RECORDS
from streams.runtime.decider.rules import (
    Command,
    Decider,
    Event,
    Rejected,
    Reply,
    State,
    Timer,
)
from streams.runtime.derivation.rules import Derivation
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection
from streams.runtime.sink import Changes, ReadModel, Table, Upsert
from streams.runtime.topic import RecordType, Topic

UNLUCKY = 7
"""Values that this divides are refused."""


@dataclass(frozen=True, slots=True)
class Append:
    """Put a value on lists of a group."""

    group: str
    lists: list[str]
    value: int


@dataclass(frozen=True, slots=True)
class Appended:
    """It was put there."""

    group: str
    lists: list[str]
    value: int


@dataclass(frozen=True, slots=True)
class Placed:
    """One element of one list; `place` is group and list."""

    place: str
    value: int


_AVRO = {
    pl.String: "string",
    pl.Int64: "long",
    pl.List(pl.String): {"type": "array", "items": "string"},
}


def _record(row: type, **dtypes: Any) -> RecordType:
    fields = [{"name": name, "type": _AVRO[dtype]} for name, dtype in dtypes.items()]
    avsc = {"type": "record", "name": row.__name__, "namespace": "headrace.chaos", "fields": fields}
    return RecordType(f"headrace.chaos.{row.__name__}", json.dumps(avsc), dtypes, row)


APPEND, APPENDED = (
    _record(row, group=pl.String, lists=pl.List(pl.String), value=pl.Int64)
    for row in (Append, Appended)
)
PLACED = _record(Placed, place=pl.String, value=pl.Int64)
PLACES = Table(
    "places",
    key={"place": pl.String, "offset": pl.Int64},
    values={"value": pl.Int64},
    bucket=("place",),
    append=True,
)
ELEMENTS = Table(
    "elements",
    key={"group": pl.String, "list": pl.String, "offset": pl.Int64},
    values={"value": pl.Int64},
    bucket=("group",),
    append=True,
)


class Rules:
    """Pure; see `streams.runtime.decider.rules.Rules`."""

    version = 1
    tables: Mapping[str, Any] = {"lengths": int}

    def decide(self, state: State, command: Command) -> Any:
        row = command.row
        if row.value % UNLUCKY == 0:
            raise Rejected("unlucky", f"{row.value} is divided by {UNLUCKY}")
        return Appended(row.group, row.lists, row.value)

    def expire(self, state: State, timer: Timer) -> Any:
        raise LookupError(timer.name)

    def evolve(self, state: State, event: Event) -> None:
        group = event.row.group
        state["lengths"][group] = (state["lengths"].get(group) or 0) + 1

    def reply(self, event: Event) -> Reply:
        return Reply(201, {"value": event.row.value})


def elements(batch: Batch) -> pl.DataFrame:
    """One row for each list that was appended to."""
    rows = batch.of(APPENDED.fullname)
    return rows.select(
        "group", pl.col("lists").alias("list"), pl.col(OFFSET).alias("offset"), "value"
    ).explode("list")


def by_place(batch: Batch) -> dict[str, pl.DataFrame]:
    """The derivation: from a record for all lists to a record for each."""
    placed = elements(batch).select(
        pl.format("{}/{}", "group", "list").alias("place"),
        "value",
        pl.col("offset").alias(OFFSET),
    )
    return {PLACED.fullname: placed}


def placed(batch: Batch) -> pl.DataFrame:
    """The rows of the derived topic."""
    return batch.of(PLACED.fullname).select("place", pl.col(OFFSET).alias("offset"), "value")


@dataclass(frozen=True)
class Keep:
    """Every element in a row of its own; no state."""

    record: RecordType
    table: Table
    elements: Callable[[Batch], pl.DataFrame]

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        rows, elements = batch.of(self.record.fullname), self.elements(batch)
        counts = {
            Fate.APPLIED.value: rows.height,
            Fate.FILTERED.value: batch.height - rows.height,
        }
        changes = [Upsert(self.table, elements)] if elements.height else []
        return None, Outcome(changes=changes, counts=counts)

    def provisional(self, state: None) -> list[Changes]:
        return []


def topics(run: str) -> tuple[Topic, Topic, Topic]:
    """Commands, events, and what is derived from these, of a run."""
    common: dict[str, Any] = {
        "event_time": None,
        "partitions": 3,
        "owner": "chaos",
        "doc": "A test's.",
    }
    commands = Topic(f"{run}.lists-commands", (APPEND,), key="group", **common)
    events = Topic(
        f"{run}.lists-events",
        (APPENDED, *CONTROL_RECORDS),
        key="group",
        decides=commands.name,
        **common,
    )
    places = Topic(
        f"{run}.lists-places", (PLACED,), key="place", derived_from=(events.name,), **common
    )
    return commands, events, places


def decider(run: str) -> Decider:
    """Of a run."""
    return Decider(f"{run}-lists", *topics(run)[:2], Rules(), snapshot_events=200)


def derivation(run: str) -> Derivation:
    """Of a run."""
    return Derivation(f"{run}-spread", *topics(run)[1:], by_place)


def projections(run: str) -> tuple[Projection, Projection]:
    """Elements by group, from the events, and by place, from what is derived."""
    _, events, places = topics(run)

    def kept(name: str, topic: Topic, fold: Keep) -> Projection:
        model = ReadModel(f"{run}-{name}", (fold.table,))
        return Projection(model.name, topic, fold, model, store="redis")

    return (
        kept("elements", events, Keep(APPENDED, ELEMENTS, elements)),
        kept("places", places, Keep(PLACED, PLACES, placed)),
    )


class NewValue(BaseModel):
    """What is to be appended."""

    lists: list[str]
    value: int


def router(run: str) -> APIRouter:
    """Routes over the lists of a run, as the product's are made."""
    commands, events, _ = topics(run)
    routes = APIRouter(prefix="/v1/lists/{group}")
    read = Depends(fresh("lists", events))

    @routes.post("", dependencies=[requires(WRITE)])
    async def append(group: str, new: NewValue, services: ServicesDep, asked: AskedDep) -> Response:
        row = Append(group, new.lists, new.value)
        return await ask(services, asked, commands, APPEND.name, row)

    @routes.get("", dependencies=[requires(READ)])
    async def contents(group: str, reader: Any = read) -> dict[str, list[int]]:
        rows = await reader.bucket(ELEMENTS.name, {"group": group})
        found: dict[str, list[int]] = {}
        for name, value in rows.sort("offset").select("list", "value").iter_rows():
            found.setdefault(name, []).append(value)
        return found

    return routes
