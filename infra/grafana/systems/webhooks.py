"""Webhooks: calls of endpoints, what is tried later and why, beside every system's questions."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, reactors, trouble
from infra.grafana.panels import fill, system_page
from infra.grafana.queries import select_system


def dashboard() -> Any:
    """Dashboard `headrace-webhooks`."""
    s, g = select_system("webhooks")
    return fill(
        system_page(
            "webhooks",
            "Deliveries: calls of endpoints, what is tried later and why, breakers, decisions.",
        ),
        ("Now", now(s, g)),
        ("Endpoints", reactors(s)),
        ("Decisions", decisions(s)),
        ("Edge", edge("webhooks")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )
