"""The dashboard of everything: rates, lag, event time, latency, errors, rebuilds, the API."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.panels import COUNT, RATE, RATIO, SECONDS, figure, fill, lines, page
from infra.grafana.queries import (
    GROUP_ANY,
    SELECT_ANY,
    error_ratio,
    happened,
    mean,
    quantile,
    rate,
)

S, G = SELECT_ANY, GROUP_ANY
API = 'route=~".+"'


def overview() -> Any:
    """Dashboard `headrace-overview`."""
    return fill(
        page(
            "headrace-overview",
            "Headrace overview",
            "All agents and the API: is everything folded, in time, without errors?",
            clickhouse=False,
            filters=True,
        ),
        ("Now", now(S, G)),
        ("Flow", flow(S)),
        ("Behind", behind(S, G)),
        ("Trouble", trouble(S)),
        ("Reactors", reactors(S)),
        ("Decisions", decisions(S)),
        ("Rebuilds", _rebuilds()),
        ("API", _api()),
        ("Chat", sockets()),
        ("Suggestions", [snapshot_age()]),
    )


def now(s: str, g: str) -> list[Any]:
    """Six numbers that say whether to look further."""
    return [
        figure("Rows a second", RATE, f"sum(rate(headrace_rows_total{{{s}}}[$__rate_interval]))"),
        figure("Records behind", COUNT, f"sum(kafka_consumergroup_lag{{{g}}})", red_above=10_000),
        figure("Oldest answer", SECONDS, f"max(headrace_lag_seconds{{{s}}})", red_above=60),
        figure(
            "Log to store, p99",
            SECONDS,
            quantile(0.99, "headrace_end_to_end_seconds", "", s),
            red_above=5,
        ),
        figure("Dead letters", COUNT, happened("headrace_dead_letters_total", s), red_above=0.5),
        figure("Restarts", COUNT, happened("headrace_worker_restarts_total", s), red_above=0.5),
    ]


def flow(s: str) -> list[Any]:
    """What is folded, and how long each step of it takes."""
    return [
        lines("Rows by agent", RATE, (rate("headrace_rows_total", "agent", s), "{{agent}}")),
        lines("Rows by fate", RATE, (rate("headrace_rows_total", "fate", s), "{{fate}}")),
        lines(
            "Rows of a batch",
            COUNT,
            (mean("headrace_batch_rows", "agent", s), "{{agent}}"),
            about="The mean. Larger batches cost less a row and wait longer.",
        ),
        lines(
            "Time of a batch, mean",
            SECONDS,
            (mean("headrace_decode_seconds", "agent", s), "{{agent}} decode"),
            (mean("headrace_fold_seconds", "agent", s), "{{agent}} fold"),
            (mean("headrace_sink_write_seconds", "agent", s), "{{agent}} write"),
        ),
        lines(
            "Write, p99",
            SECONDS,
            (
                quantile(0.99, "headrace_sink_write_seconds", "agent, store", s),
                "{{agent}} {{store}}",
            ),
        ),
        lines(
            "Log append to durable",
            SECONDS,
            (quantile(0.5, "headrace_end_to_end_seconds", "agent", s), "{{agent}} p50"),
            (quantile(0.99, "headrace_end_to_end_seconds", "agent", s), "{{agent}} p99"),
            about="Of the oldest record of each write: no record waited longer.",
        ),
    ]


def behind(s: str, g: str) -> list[Any]:
    """How far the read models are behind the log, and event time behind the clock."""
    return [
        lines(
            "Records behind",
            COUNT,
            (f"sum by (consumergroup) (kafka_consumergroup_lag{{{g}}})", "{{consumergroup}}"),
        ),
        lines(
            "Seconds behind",
            SECONDS,
            (f"max by (agent) (headrace_lag_seconds{{{s}}})", "{{agent}}"),
            about="Age of the newest folded record while newer ones wait.",
        ),
        lines(
            "Watermark delay",
            SECONDS,
            (f"max by (agent) (headrace_watermark_delay_seconds{{{s}}})", "{{agent}}"),
            about="Grows by a second a second on a partition without events; that is normal.",
        ),
        lines(
            "Progress",
            RATE,
            (
                f"sum by (consumergroup) (deriv(kafka_consumergroup_current_offset{{{g}}}"
                "[$__rate_interval]))",
                "{{consumergroup}}",
            ),
            about="Offsets a second by which the stored positions move.",
        ),
        lines(
            "Fetched, not folded",
            COUNT,
            (f"sum by (agent) (headrace_queue_rows{{{s}}})", "{{agent}}"),
            about="At its limit, partitions are paused until the agent catches up.",
        ),
        lines(
            "Assigned partitions",
            COUNT,
            (f"sum by (agent) (headrace_assigned_partitions{{{s}}})", "{{agent}}"),
        ),
    ]


def trouble(s: str) -> list[Any]:
    """What went wrong and was survived."""
    return [
        lines(
            "Dead letters",
            RATE,
            (rate("headrace_dead_letters_total", "topic, reason", s), "{{topic}} {{reason}}"),
        ),
        lines("Late rows", RATE, (rate("headrace_late_rows_total", "agent", s), "{{agent}}")),
        lines(
            "Refused by the reader rule",
            RATE,
            (rate("headrace_stale_rows_total", "agent, reason", s), "{{agent}} {{reason}}"),
            about="Written by a deposed decider, derived again after a crash, or behind a hole.",
        ),
        lines(
            "Fence refusals",
            RATE,
            (rate("headrace_fence_refusals_total", "agent, store", s), "{{agent}} {{store}}"),
            about="A few at a rebalance; steady means two writers. Nothing is applied twice.",
        ),
        lines(
            "Sink retries",
            RATE,
            (rate("headrace_sink_retries_total", "store, reason", s), "{{store}} {{reason}}"),
        ),
        lines(
            "Registry retries",
            RATE,
            (rate("headrace_registry_retries_total", "agent", s), "{{agent}}"),
        ),
        lines("Restarts", RATE, (rate("headrace_worker_restarts_total", "agent", s), "{{agent}}")),
    ]


def edge(system: str) -> list[Any]:
    """What clients of one system see."""
    routes = f'route=~".*{system}.*"'
    requests = "http_server_request_duration_seconds"
    return [
        lines(
            "Events acknowledged",
            RATE,
            (rate("headrace_api_events_total", "topic", f'system="{system}"'), "{{topic}}"),
        ),
        lines(
            "Answer time, p99", SECONDS, (quantile(0.99, requests, "route", routes), "{{route}}")
        ),
        lines("Server errors", RATIO, (error_ratio(routes), "5xx")),
    ]


def reactors(s: str) -> list[Any]:
    """Calls to the outside."""
    calls = "headrace_reactor_call_seconds"
    return [
        lines(
            "Calls by result",
            RATE,
            (rate("headrace_reactor_calls_total", "agent, result", s), "{{agent}} {{result}}"),
            about="failed comes back after a delay; gave_up is a dead letter.",
        ),
        lines("Time of a call, p99", SECONDS, (quantile(0.99, calls, "agent", s), "{{agent}}")),
        lines(
            "Sent to a retry topic",
            RATE,
            (rate("headrace_reactor_deferred_total", "agent, reason", s), "{{agent}} {{reason}}"),
            about="All but failed cost no try.",
        ),
        lines(
            "Passed over",
            RATE,
            (
                rate("headrace_reactor_passed_over_total", "agent, reason", s),
                "{{agent}} {{reason}}",
            ),
        ),
        lines(
            "Calls now",
            COUNT,
            (f"sum by (agent) (headrace_reactor_in_flight{{{s}}})", "{{agent}} running"),
            (f"sum by (agent) (headrace_reactor_waiting{{{s}}})", "{{agent}} waiting"),
        ),
        lines(
            "Providers not called",
            COUNT,
            (f"max by (agent) (headrace_reactor_breakers_open{{{s}}})", "{{agent}}"),
            about="Their calls fail again and again; one call at a time probes them.",
        ),
    ]


def sockets() -> list[Any]:
    """The sockets of chat, in all processes of the API."""
    return [
        lines("Sockets", COUNT, ("sum(headrace_chat_sockets)", "open")),
        lines("Frames", RATE, (rate("headrace_chat_frames_total", "kind", ""), "{{kind}}")),
        lines(
            "Sockets cut by this side",
            RATE,
            (rate("headrace_chat_cuts_total", "code", ""), "{{code}}"),
            about="4008: the client was too slow. 4009: it has to take up again. 4010: silent.",
        ),
    ]


def snapshot_age() -> Any:
    """How old what typeahead suggests is, by the process that is furthest behind."""
    built = "min(headrace_typeahead_snapshot_built_timestamp_seconds)"
    return lines(
        "Age of the snapshot",
        SECONDS,
        (f"time() - {built}", "since it was built"),
        about="What is suggested by popularity; searches of the last minutes are added to it.",
    )


def _rebuilds() -> list[Any]:
    done = f"max by (agent) (headrace_rebuild_rows{{{S}}})"
    target = f"max by (agent) (headrace_rebuild_target_rows{{{S}}})"
    return [
        lines("Rebuilt", RATIO, (f"{done} / {target}", "{{agent}}")),
        lines(
            "Rebuild rate",
            RATE,
            (f"{done} / max by (agent) (headrace_rebuild_seconds{{{S}}})", "{{agent}}"),
        ),
        lines(
            "Rebuild time left",
            SECONDS,
            (
                f"({target} - {done}) * max by (agent) (headrace_rebuild_seconds{{{S}}}) / {done}",
                "{{agent}}",
            ),
            about="At the mean rate since its start.",
        ),
    ]


def _api() -> list[Any]:
    requests = "http_server_request_duration_seconds"
    return [
        lines(
            "Requests",
            RATE,
            (
                rate(f"{requests}_count", "method, route, status", API),
                "{{method}} {{route}} {{status}}",
            ),
        ),
        lines("Answer time, p99", SECONDS, (quantile(0.99, requests, "route", API), "{{route}}")),
        lines("Server errors", RATIO, (error_ratio(API), "5xx")),
        lines(
            "Events acknowledged",
            RATE,
            (rate("headrace_api_events_total", "topic", 'system=~"$system"'), "{{topic}}"),
        ),
        lines(
            "Decided by the rate limiter",
            RATE,
            (rate("headrace_limiter_decisions_total", "outcome", ""), "{{outcome}}"),
            (rate("headrace_limiter_unlogged_total", "reason", ""), "not logged: {{reason}}"),
        ),
    ]
