"""Notifications: what the lanes send and how soon, beside the questions of every system."""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, edge, flow, now, reactors, trouble
from infra.grafana.panels import fill, system_page
from infra.grafana.queries import select_system


def dashboard() -> Any:
    """Dashboard `headrace-notifications`."""
    s, g = select_system("notifications")
    return fill(
        system_page(
            "notifications",
            "Messages by lane: calls of providers, tries, what is left for later, breakers.",
        ),
        ("Now", now(s, g)),
        ("Lanes", reactors(s)),
        ("Edge", edge("notifications")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )
