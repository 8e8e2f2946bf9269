"""Pastes: what is decided and what is deleted, beside the questions of every system."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, reactors, trouble
from infra.grafana.panels import RATE, fill, lines, system_page
from infra.grafana.queries import rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-pastes`."""
    s, g = select_system("pastes")
    return fill(
        system_page("pastes", "Pastes: made, ended, and their contents deleted."),
        ("Now", now(s, g)),
        ("Pastes", _pastes(s)),
        ("Decisions", decisions(s)),
        ("Object store", reactors(s)),
        ("Edge", edge("pastes")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _pastes(s: str) -> list[Any]:
    of = f'{s},agent="pastes-table"'
    return [
        lines(
            "Changes of pastes",
            RATE,
            (rate("headrace_rows_total", "", f'{of},fate="applied"'), "made, ended, purged"),
            (rate("headrace_rows_total", "", f'{of},fate="filtered"'), "refused, and others"),
        )
    ]
