"""Webhooks: calls of endpoints, what is tried later and why, beside every system's questions."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, reactors, trouble
from infra.grafana.panels import fill, page
from infra.grafana.queries import select_system


def dashboard() -> Any:
    """Dashboard `headrace-webhooks`."""
    s, g = select_system("webhooks")
    return fill(
        page(
            "headrace-webhooks",
            "Headrace: webhooks",
            "Deliveries: calls of endpoints, what is tried later and why, breakers, decisions.",
            clickhouse=False,
            filters=False,
        ),
        ("Now", now(s, g)),
        ("Endpoints", reactors(s)),
        ("Decisions", decisions(s)),
        ("Edge", edge("webhooks")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )
