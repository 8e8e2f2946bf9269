"""Chat: sockets and what goes to them, beside every system's questions."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, reactors, sockets, trouble
from infra.grafana.panels import fill, system_page
from infra.grafana.queries import select_system


def dashboard() -> Any:
    """Dashboard `headrace-chat`."""
    s, g = select_system("chat")
    return fill(
        system_page("chat", "Conversations: decided, pushed, kept."),
        ("Now", now(s, g)),
        ("Sockets", sockets()),
        ("Decisions", decisions(s)),
        ("Edge", edge("chat")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Notifications of who is away", reactors(s)),
        ("Trouble", trouble(s)),
    )
