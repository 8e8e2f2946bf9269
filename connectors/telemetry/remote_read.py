"""Prometheus remote read: a `ReadRequest` to queries, found series to a `ReadResponse`.

Source: prometheus.io/docs/prometheus/latest/querying/remote_read_api, response type SAMPLES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from connectors.telemetry.line import TIME_MS_MAX
from connectors.telemetry.prometheus_messages import MATCHERS, ReadRequest, ReadResponse
from connectors.telemetry.remote_write import STALE, BadMessage

QUERIES_MAX = 16


@dataclass(frozen=True)
class Asked:
    """One query: label, operator and value of each matcher; both ends of the time are in."""

    matchers: tuple[tuple[str, str, str], ...]
    from_ms: int
    to_ms: int


class Answered(Protocol):
    """A series with its samples by time."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def times_ms(self) -> Sequence[int]: ...
    @property
    def values(self) -> Sequence[float | None]: ...


def decode(body: bytes) -> list[Asked]:
    """The queries of an uncompressed request. Raises `BadMessage`."""
    request: Any = ReadRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise BadMessage(f"not a ReadRequest: {error}") from None
    if len(request.queries) > QUERIES_MAX:
        raise BadMessage(f"more than {QUERIES_MAX} queries")
    return [_asked(query) for query in request.queries]


def _asked(query: Any) -> Asked:
    matchers = []
    for matcher in query.matchers:
        if not 0 <= matcher.type < len(MATCHERS):
            raise BadMessage(f"no such matcher: {matcher.type}")
        matchers.append((matcher.name, MATCHERS[matcher.type], matcher.value))
    start, end = (
        min(max(0, at), TIME_MS_MAX) for at in (query.start_timestamp_ms, query.end_timestamp_ms)
    )
    return Asked(tuple(matchers), start, end)


def answer(results: Sequence[Sequence[Answered]]) -> bytes:
    """The response, a result for each query, before compression."""
    response: Any = ReadResponse()
    for found in results:
        result = response.results.add()
        for series in sorted(found, key=lambda one: sorted(one.labels.items())):
            written = result.timeseries.add()
            for name, value in sorted(series.labels.items()):
                written.labels.add(name=name, value=value)
            for at, sampled in zip(series.times_ms, series.values, strict=True):
                written.samples.add(timestamp=at, value=STALE if sampled is None else sampled)
    return bytes(response.SerializeToString())
