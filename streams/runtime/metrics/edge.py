"""The metrics of the API's processes; part of the catalogue."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

HTTP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Those of OpenTelemetry's `http.server.request.duration`."""


class Api:
    """The HTTP edge. `route` is the route template, never the path."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.request = Histogram(
            "http_server_request_duration_seconds",
            "Time to answer a request.",
            ("route", "method", "status"),
            buckets=HTTP_BUCKETS_S,
            registry=registry,
        )
        self.events = Counter(
            "headrace_api_events_total",
            "Events acknowledged by the log.",
            ("system", "topic"),
            registry=registry,
        )


class Limits:
    """The rate limiter of the API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decided = Counter(
            "headrace_limiter_decisions_total",
            "Requests that rules were asked about: admitted, refused, and open or closed where the "
            "counters did not answer.",
            ("outcome",),
            registry=registry,
        )
        self.dropped = Counter(
            "headrace_limiter_unlogged_total",
            "Decisions that did not get into the log, by reason.",
            ("reason",),
            registry=registry,
        )


class Chat:
    """The sockets of chat, in the processes of the API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sockets = Gauge(
            "headrace_chat_sockets",
            "Sockets that are open.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.frames = Counter(
            "headrace_chat_frames_total",
            "Frames queued for sockets, by kind: entry, history, receipt, typing.",
            ("kind",),
            registry=registry,
        )
        self.cuts = Counter(
            "headrace_chat_cuts_total",
            "Sockets cut by this side, by close code (4008: slow, 4009: to be taken up again, "
            "4010: silent).",
            ("code",),
            registry=registry,
        )


class Suggestions:
    """What suggestions come from, in the processes of the API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.built = Gauge(
            "headrace_typeahead_snapshot_built_timestamp_seconds",
            "When the snapshot that answers was built (Unix time); of several processes the "
            "oldest. Not there without a snapshot.",
            ("system",),
            registry=registry,
            multiprocess_mode="livemin",
        )
