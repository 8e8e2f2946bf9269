"""What is asked about: a span of event time, a query, a place to go on from."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Depends, Query

from api.models import QueryInstant
from api.problem import InputError, Problem, invalid
from sinks.telemetry.query import BadQuery, FoundLine, LogQuery, Span, levels, lowered, parse

SPAN_MS_MAX = 400 * 86_400_000
Since = Annotated[QueryInstant, Query(alias="from", description="Event time, inclusive.")]
Until = Annotated[QueryInstant, Query(alias="to", description="Event time, exclusive.")]


def wrong(parameter: str, detail: str) -> Problem:
    """422 for one parameter."""
    return invalid(f"{parameter}: {detail}", InputError(detail=detail, parameter=parameter))


async def span_of(since: Since, until: Until) -> Span:
    """Dependency: the span of event time."""
    if not 0 <= until - since <= SPAN_MS_MAX:
        raise wrong("to", f"must be from 0 to {SPAN_MS_MAX // 86_400_000} days after from")
    return Span(since, until)


@dataclass(frozen=True)
class Wanted:
    """Parameters of a search. What is given apart is added to what `q` says."""

    q: Annotated[
        str,
        Query(
            max_length=2_000,
            description='Words and "phrases" of the message, -excluded ones, and fields: '
            "`service:pay*`, `level:>=warn`, `trace:…`, `span:…`, `stream:…`, and labels by name.",
            examples=['timeout -retry service:pay level:>=warn host:"pod 7"'],
        ),
    ] = ""
    service: Annotated[str, Query(max_length=200)] = ""
    level: Annotated[str, Query(max_length=100, description="`error`, `warn,error`, `>=warn`")] = ""
    text: Annotated[str, Query(max_length=500, description="In the message.")] = ""
    trace_id: Annotated[str, Query(max_length=32)] = ""

    def query(self) -> LogQuery:
        """The search; raises 422."""
        try:
            found = parse(self.q)
            more = levels(self.level) if self.level else ()
        except BadQuery as error:
            raise wrong("q", str(error)) from None
        return LogQuery(
            services=(*found.services, *filter(None, [self.service])),
            levels=(*found.levels, *more),
            stream=found.stream,
            trace_id=self.trace_id.lower() or found.trace_id,
            span_id=found.span_id,
            texts=(*found.texts, *filter(None, [lowered(self.text)])),
            without=found.without,
            labels=found.labels,
        )


SpanDep = Annotated[Span, Depends(span_of)]
WantedDep = Annotated[Wanted, Depends()]


def cursor(last: FoundLine) -> str:
    """Where the next page begins."""
    place = [last.event_time, last.nanos, last.line_id]
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode()


def place(text: str) -> tuple[int, int, str]:
    """The inverse of `cursor`; raises 422."""
    try:
        found: Any = orjson.loads(base64.urlsafe_b64decode(text.encode()))
    except (binascii.Error, ValueError):
        found = None
    match found:
        case [int(at), int(nanos), str(line_id)] if abs(at) < 2**53 and 0 <= nanos < 10**6:
            return at, nanos, line_id
    raise wrong("cursor", "not a cursor of this API")
