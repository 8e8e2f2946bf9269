"""Lines: search over both tiers, counts, the audit of the counts, and following."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Protocol

import orjson
import polars as pl
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, requires
from api.positions import APPLIED, After, AppliedSource, after, parse, wait_for
from api.problem import Problem, busy, responses
from api.reads import fresh
from api.routes.telemetry.spans import (
    SpanDep,
    WantedDep,
    cursor,
    place,
)
from api.services import ServicesDep
from schemas.telemetry.events import LOGS
from sinks.telemetry import rollups
from sinks.telemetry.query import FoundLine, LogQuery, Page, Span

LIMIT_MAX = 1_000
FOLLOWERS_MAX = 16
FOLLOW_EVERY_S = 0.5
HEARTBEAT_S = 10.0
FOLLOW_FOR_S = 3_600.0

router = APIRouter(
    prefix="/v1/telemetry/logs",
    tags=["telemetry"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


class LineReads(AppliedSource, Protocol):
    """What the routes ask of the lines; `sinks.telemetry.lines.LineReader` answers."""

    tiers: AppliedSource

    async def needs_cold(self, span: Span) -> bool:
        """Whether the span reaches behind the hot tier."""
        ...

    async def search(self, query: LogQuery, span: Span, page: Page) -> Sequence[FoundLine]:
        """The newest lines first."""
        ...

    async def since(
        self, query: LogQuery, after: Mapping[int, int], limit: int
    ) -> Sequence[FoundLine]:
        """Lines from these offsets on, in log order."""
        ...


class RollupReads(AppliedSource, Protocol):
    """What the routes ask of the counts; `sinks.telemetry.rollups.RollupReader` answers."""

    async def counts(self, span: Span, step: rollups.Step) -> pl.DataFrame:
        """Lines by start, service and level."""
        ...

    async def audit(self, span: Span) -> rollups.Audit:
        """The lines of a span, counted three ways."""
        ...


class Line(BaseModel):
    """A line that was found."""

    line_id: str
    event_time: int = Field(description="When it was written, milliseconds since 1970.")
    nanos: int = Field(description="Nanoseconds past `event_time`.")
    service: str
    stream: str
    level: str
    body: str
    trace_id: str | None
    span_id: str | None
    labels: dict[str, str]
    weight: int = Field(description="How many lines it stands for, where a rule sampled.")
    late: bool = Field(description="It came when its minute had been counted.")
    tier: str = Field(description="Where it was found: hot or cold.", examples=["hot"])


class Lines(BaseModel):
    """A page of lines, the newest first."""

    lines: list[Line]
    next: str | None = Field(description="`cursor` of the next page; null on the last.")


class Count(BaseModel):
    """Lines of a service and level in a minute or an hour."""

    start_ms: int
    service: str
    level: str
    lines: int = Field(description="Lines that are stored.")
    weight: int = Field(description="How many they stand for.")


class Audit(BaseModel):
    """The same lines counted by the stream, and counted again from both tiers."""

    rollups: int = Field(description="Counted in time, by the stream.")
    late: int = Field(description="Came after their minute was closed.")
    raw: int = Field(description="Counted again, line by line.")
    difference: int = Field(description="Rollups and late less raw: zero.")


async def lines_of(services: ServicesDep) -> LineReads:
    """Dependency: the reader of lines, wherever it stands."""
    found: LineReads | None = services.readers.get("telemetry")
    if found is None:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "no-read-model",
            "this server has no read model of telemetry",
            headers={"Retry-After": "60"},
        )
    return found


LinesDep = Annotated[LineReads, Depends(lines_of)]
RollupsDep = Annotated[RollupReads, Depends(fresh("telemetry-rollups", LOGS))]
AfterDep = Annotated[After, Depends(after)]


def shown(line: FoundLine) -> Line:
    """A line as answers show it."""
    return Line(
        **{name: getattr(line, name) for name in Line.model_fields if name != "labels"},
        labels=orjson.loads(line.labels),
    )


async def page_of(
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Lines of a page.")] = 100,
    cursor: Annotated[str, Query(max_length=500, description="`next` of the page before.")] = "",
) -> Page:
    """Dependency: which page."""
    return Page(limit, place(cursor) if cursor else None)


async def settled(
    request: Request, response: Response, source: LinesDep, span: SpanDep, wanted: AfterDep
) -> LineReads:
    """Dependency: the lines, once every tier that the span needs has passed what is asked for."""
    tiers = source.tiers if await source.needs_cold(span) else source
    waiting = request.app.state.waiting
    response.headers[APPLIED] = await wait_for(wanted, tiers, (LOGS.name,), waiting)
    return source


@router.get("", response_model=Lines)
async def search(
    source: Annotated[LineReads, Depends(settled)],
    span: SpanDep,
    wanted: WantedDep,
    page: Annotated[Page, Depends(page_of)],
) -> Lines:
    """Lines of a span, the newest first, wherever they are stored."""
    found = await source.search(wanted.query(), span, page)
    more = cursor(found[-1]) if len(found) == page.limit else None
    return Lines(lines=[shown(line) for line in found], next=more)


@router.get("/counts", response_model=list[Count])
async def counts(
    span: SpanDep,
    source: RollupsDep,
    step: Annotated[rollups.Step, Query(description="Minutes or hours that begin in the span.")],
) -> list[dict[str, Any]]:
    """Lines by service and level, per minute or hour: as counted by the stream, and whatever came
    too late for that.
    """
    return (await source.counts(span, step)).to_dicts()


@router.get("/audit", response_model=Audit)
async def audit(span: SpanDep, source: RollupsDep) -> Audit:
    """Whole minutes of a span: as the stream counted, and counted again from the lines that are
    kept. Where the store behind one is ahead of the other's, the difference says by how much.
    """
    step_ms = rollups.MINUTE_MS
    whole = Span(span.from_ms // step_ms * step_ms, span.to_ms // step_ms * step_ms)
    found = await source.audit(whole)
    return Audit(
        rollups=found.rollups,
        late=found.late,
        raw=found.raw,
        difference=found.rollups + found.late - found.raw,
    )


@router.get(
    "/tail",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def tail(
    request: Request,
    source: LinesDep,
    wanted: WantedDep,
    last_event_id: Annotated[
        str | None, Header(max_length=2_000, description="`id` of the last event received.")
    ] = None,
) -> StreamingResponse:
    """Lines as they come in, as server-sent events, whatever their event time. An event's `id` is
    the place in the log behind it: send it as `Last-Event-ID` to go on without a gap.
    """
    query = wanted.query()
    if last_event_id:
        start = {at: offset for (_, at), offset in parse(last_event_id).items()}
    else:
        start = {at: offset for (_, at), offset in (await source.applied()).items()}
    state = request.app.state
    state.followers = getattr(state, "followers", 0)
    if state.followers >= FOLLOWERS_MAX:
        raise busy(f"{FOLLOWERS_MAX} requests follow the log already", retry_after_s=10)
    return StreamingResponse(
        _counted(state, follow(source, query, start)), media_type="text/event-stream"
    )


async def _counted(state: Any, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    state.followers += 1
    try:
        async for event in events:
            yield event
    finally:
        state.followers -= 1


async def follow(
    source: LineReads, query: LogQuery, start: Mapping[int, int]
) -> AsyncIterator[bytes]:
    """Events of the lines from these offsets on, for at most an hour; the client comes again."""
    behind = dict(start)
    until_s = time.monotonic() + FOLLOW_FOR_S
    quiet_s = time.monotonic()
    yield b": following\n\n"
    while time.monotonic() < until_s:
        applied = {at: offset for (_, at), offset in (await source.applied()).items()}
        for at in applied.keys() - behind.keys():
            behind[at] = 0  # a partition that had nothing when this began
        found = await source.since(query, behind, LIMIT_MAX)
        for line in found:
            behind[line.partition] = line.offset + 1
            yield _event(line, behind)
        if len(found) < LIMIT_MAX:
            # Nothing of the query was below these: no need to look there again.
            behind = {at: max(offset, applied.get(at, 0)) for at, offset in behind.items()}
            await asyncio.sleep(FOLLOW_EVERY_S)
        if found:
            quiet_s = time.monotonic()
        elif time.monotonic() - quiet_s > HEARTBEAT_S:
            quiet_s = time.monotonic()
            yield b": nothing new\n\n"


def _event(line: FoundLine, behind: Mapping[int, int]) -> bytes:
    # The id is a position header of the next offsets, which are the first not received.
    place = ", ".join(f"{LOGS.name}/{at}/{offset}" for at, offset in sorted(behind.items()))
    return f"id: {place}\ndata: {shown(line).model_dump_json()}\n\n".encode()
