"""Chat: what becomes of events, beside the questions of every system."""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import RATE, RATIO, fill, lines, page
from infra.grafana.queries import rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-chat`."""
    s, g = select_system("chat")
    return fill(
        page(
            "headrace-chat",
            "Headrace: chat",
            "Events: how many, how soon they count, and which do not.",
            clickhouse=False,
            filters=False,
        ),
        ("Now", now(s, g)),
        ("Events", _events(s)),
        ("Edge", edge("chat")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _events(s: str) -> list[Any]:
    applied = rate("headrace_rows_total", "", f'{s},fate="applied"')
    every = rate("headrace_rows_total", "", s)
    refused = rate("headrace_rows_total", "fate", f'{s},fate!="applied"')
    return [
        lines("Events applied", RATE, (applied, "applied")),
        lines("Events not applied", RATE, (refused, "{{fate}}")),
        lines("Share applied", RATIO, (f"{applied} / {every}", "applied")),
    ]
