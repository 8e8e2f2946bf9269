"""Metrics: PromQL by Prometheus, which reads its samples from here; series, and their rollups.

There is no PromQL of our own. Prometheus is the engine and keeps nothing: it asks for raw samples
by remote read (`/v1/telemetry/prometheus/read`), and the query routes hand on what it answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Protocol, cast

import httpx
from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel

from api import ingest
from api.auth import READ, requires
from api.positions import AppliedSource
from api.problem import Problem, responses
from api.reads import fresh
from api.routes.telemetry.ingest import PREFIX, Body, bad
from api.routes.telemetry.spans import SpanDep, wrong
from api.services import ServicesDep
from connectors.telemetry import otlp
from connectors.telemetry.encoding import snappy
from connectors.telemetry.remote_read import answer, decode
from connectors.telemetry.remote_write import BadMessage
from schemas.telemetry.events import SAMPLES
from sinks.telemetry.metrics import FoundSeries, Matcher, Measure, Operator
from sinks.telemetry.query import Span
from sinks.telemetry.rollups import Step

QUERY_TIMEOUT_S = 30.0

router = APIRouter(
    prefix=PREFIX,
    tags=["telemetry"],
    dependencies=[requires(READ)],
    responses={**responses(400, 504), 200: {"headers": ingest.APPLIED_HEADER}},
)

engine = APIRouter(
    prefix=PREFIX,
    tags=["telemetry"],
    dependencies=[requires(READ)],
    responses=responses(400, 504),
)


class MetricReads(AppliedSource, Protocol):
    """What the routes ask of the samples; `sinks.telemetry.metrics.MetricReader` answers."""

    async def select(self, matchers: Sequence[Matcher], span: Span) -> Sequence[FoundSeries]:
        """Series that all matchers hold for, with samples."""
        ...

    async def measures(
        self, matchers: Sequence[Matcher], span: Span, step: Step
    ) -> Sequence[tuple[Mapping[str, str], list[Measure]]]:
        """What each series was, per minute or hour."""
        ...

    async def cardinality(self, limit: int) -> Mapping[str, int]:
        """The metrics with the most series."""
        ...


class PromQl(Protocol):
    """Prometheus, as far as it is asked; `httpx.AsyncClient` answers."""

    async def get(self, url: str, *, params: Any) -> httpx.Response:
        """GET."""
        ...


class Measured(BaseModel):
    """A series, and what it was per minute or hour."""

    labels: dict[str, str]
    points: list[Measure]


class Metric(BaseModel):
    """How many series a metric has."""

    name: str
    series: int


MetricsDep = Annotated[MetricReads, Depends(fresh("telemetry-metrics", SAMPLES))]
Expression = Annotated[str, Query(min_length=1, max_length=8_000, description="PromQL.")]
Moment = Annotated[
    str,
    Query(max_length=40, description="RFC 3339, or seconds since 1970.", pattern=r"^[\w:.+-]+$"),
]


@router.post(
    "/prometheus/read",
    response_class=Response,
    openapi_extra={"requestBody": {"required": True, "content": {otlp.PROTOBUF: {}}}},
)
async def prometheus_read(body: Body, source: MetricsDep, response: Response) -> Response:
    """Remote read: raw samples of the series that the matchers hold for."""
    try:
        queries = decode(body)
    except BadMessage as error:
        raise bad(str(error)) from None
    results = [
        await source.select(
            [Matcher(name, cast("Operator", how), value) for name, how, value in one.matchers],
            Span(one.from_ms, one.to_ms),
        )
        for one in queries
    ]
    return Response(
        snappy(answer(results)),
        media_type=otlp.PROTOBUF,
        headers={**response.headers, "Content-Encoding": "snappy"},
    )


async def engine_of(services: ServicesDep) -> PromQl:
    """Dependency: the PromQL engine."""
    found: PromQl | None = services.readers.get("telemetry-promql")
    if found is None:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "no-promql", "this server has no Prometheus to ask"
        )
    return found


EngineDep = Annotated[PromQl, Depends(engine_of)]


@engine.get("/query")
async def promql(query: Expression, source: EngineDep, time: Moment = "") -> Response:
    """PromQL at one time, answered as Prometheus answers."""
    return await _ask(source, "/api/v1/query", {"query": query, "time": time})


@engine.get("/query_range")
async def promql_range(
    query: Expression,
    source: EngineDep,
    start: Moment,
    end: Moment,
    step: Annotated[str, Query(pattern=r"^\d+(\.\d+)?(ms|s|m|h|d)?$", max_length=20)],
) -> Response:
    """PromQL over a range, answered as Prometheus answers."""
    asked = {"query": query, "start": start, "end": end, "step": step}
    return await _ask(source, "/api/v1/query_range", asked)


@router.get("/metrics/rollups", response_model=list[Measured])
async def metric_rollups(
    span: SpanDep,
    source: MetricsDep,
    metric: Annotated[str, Query(min_length=1, max_length=200)],
    step: Annotated[Step, Query(description="Minutes or hours that begin in the span.")],
    label: Annotated[
        list[str] | None, Query(max_length=16, description="`name=value`, repeated.")
    ] = None,
) -> list[Measured]:
    """Count, sum, least, greatest and last value of each series of a metric."""
    matchers = [Matcher("__name__", "=", metric)]
    for one in label or ():
        name, equals, value = one.partition("=")
        if not equals:
            raise wrong("label", "must be name=value")
        matchers.append(Matcher(name, "=", value))
    found = await source.measures(matchers, span, step)
    return [Measured(labels=dict(labels), points=points) for labels, points in found]


@router.get("/metrics/cardinality", response_model=list[Metric])
async def cardinality(
    source: MetricsDep, n: Annotated[int, Query(ge=1, le=1_000)] = 50
) -> list[Metric]:
    """The metrics with the most series."""
    found = await source.cardinality(n)
    return [Metric(name=name, series=series) for name, series in found.items()]


async def _ask(engine: PromQl, path: str, asked: Mapping[str, str]) -> Response:
    try:
        found = await engine.get(path, params={k: v for k, v in asked.items() if v})
    except httpx.TimeoutException:
        raise Problem(
            HTTPStatus.GATEWAY_TIMEOUT, "promql-timeout", f"no answer in {QUERY_TIMEOUT_S:g} s"
        ) from None
    except httpx.HTTPError as error:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "no-promql",
            f"Prometheus does not answer: {type(error).__name__}",
            headers={"Retry-After": "5"},
        ) from None
    if found.status_code in {400, 422}:
        raise wrong("query", str(found.json().get("error", ""))[:500])
    if found.status_code != 200:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "no-promql",
            f"Prometheus answers {found.status_code}",
            headers={"Retry-After": "5"},
        )
    return Response(found.content, media_type="application/json")
