"""Ids: leases and ranges decided, beside every system's questions."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import fill, system_page
from infra.grafana.queries import select_system


def dashboard() -> Any:
    """Dashboard `headrace-ids`."""
    s, g = select_system("ids")
    return fill(
        system_page(
            "ids",
            "Leases of worker numbers and ranges: decided, refused. Ids themselves cost the log "
            "nothing.",
        ),
        ("Now", now(s, g)),
        ("Decisions", decisions(s)),
        ("Edge", edge("ids")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )
