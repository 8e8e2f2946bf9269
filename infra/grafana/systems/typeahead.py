"""Typeahead: what is searched for, what of it counts, and how soon suggestions come."""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, edge, flow, now, snapshot_age, trouble
from infra.grafana.panels import RATE, RATIO, SECONDS, fill, lines, system_page
from infra.grafana.queries import quantile, rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-typeahead`."""
    s, g = select_system("typeahead")
    return fill(
        system_page("typeahead", "Searches in, suggestions out."),
        ("Now", now(s, g)),
        ("Suggestions", _suggestions(s)),
        ("Edge", edge("typeahead")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _suggestions(s: str) -> list[Any]:
    of = f'{s},agent="typeahead-counts"'
    applied = rate("headrace_rows_total", "", f'{of},fate="applied"')
    every = rate("headrace_rows_total", "", of)
    refused = rate("headrace_rows_total", "fate", f'{of},fate!="applied"')
    asked = 'route=~"/v1/(suggest|typeahead).*"'
    requests = "http_server_request_duration_seconds"
    return [
        lines(
            "Answer time",
            SECONDS,
            (quantile(0.5, requests, "route", asked), "p50 {{route}}"),
            (quantile(0.99, requests, "route", asked), "p99 {{route}}"),
        ),
        lines(
            "Searches",
            RATE,
            (applied, "that count"),
            (refused, "{{fate}}"),
            about="filtered: half a word, found nothing, or said before by the same person.",
        ),
        lines("Share that counts", RATIO, (f"{applied} / {every}", "applied")),
        snapshot_age(),
    ]
