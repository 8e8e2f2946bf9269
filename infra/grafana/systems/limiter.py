"""Limiter: what was decided, and what of it got into the log, beside the questions of every
system.
"""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import RATE, RATIO, fill, lines, system_page
from infra.grafana.queries import rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-limiter`."""
    s, g = select_system("limiter")
    return fill(
        system_page(
            "limiter",
            "Requests by what was decided, decisions that are not logged, and the counts of them.",
        ),
        ("Now", now(s, g)),
        ("Decisions", _decisions()),
        ("Events", _events(s)),
        ("Edge", edge("limiter")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _decisions() -> list[Any]:
    decided = rate("headrace_limiter_decisions_total", "outcome", "")
    unlogged = rate("headrace_limiter_unlogged_total", "reason", "")
    return [
        lines("Decided", RATE, (decided, "{{outcome}}")),
        lines("Not logged", RATE, (unlogged, "{{reason}}")),
    ]


def _events(s: str) -> list[Any]:
    applied = rate("headrace_rows_total", "", f'{s},fate="applied"')
    every = rate("headrace_rows_total", "", s)
    refused = rate("headrace_rows_total", "fate", f'{s},fate!="applied"')
    return [
        lines("Events applied", RATE, (applied, "applied")),
        lines("Events not applied", RATE, (refused, "{{fate}}")),
        lines("Share applied", RATIO, (f"{applied} / {every}", "applied")),
    ]
