"""Payments: what is decided, refused and asked of the provider, beside every system's questions."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, reactors, trouble
from infra.grafana.panels import RATE, fill, lines, system_page
from infra.grafana.queries import rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-payments`."""
    s, g = select_system("payments")
    return fill(
        system_page(
            "payments",
            "Money: journal entries and refusals, calls of the provider, what waits for an answer.",
        ),
        ("Now", now(s, g)),
        ("Journal", _journal(s)),
        ("Decisions", decisions(s)),
        ("Provider and clearing", reactors(s)),
        ("Edge", edge("payments")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _journal(s: str) -> list[Any]:
    return [
        lines(
            "Journal entries",
            RATE,
            (rate("headrace_rows_total", "", f'{s},fate="applied"'), "recorded"),
        ),
        lines(
            "Commands refused",
            RATE,
            (rate("headrace_rows_total", "", f'{s},fate="filtered"'), "refused"),
        ),
    ]
