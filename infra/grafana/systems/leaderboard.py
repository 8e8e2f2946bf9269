"""Leaderboard: which scores rank and which do not, beside the questions of every system."""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import RATE, RATIO, fill, lines, system_page
from infra.grafana.queries import rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-leaderboard`."""
    s, g = select_system("leaderboard")
    return fill(
        system_page("leaderboard", "Scores: how many, how soon they rank, and which were refused."),
        ("Now", now(s, g)),
        ("Scores", _scores(s)),
        ("Edge", edge("leaderboard")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _scores(s: str) -> list[Any]:
    applied = rate("headrace_rows_total", "", f'{s},fate="applied"')
    every = rate("headrace_rows_total", "", s)
    return [
        lines("Scores ranked", RATE, (applied, "ranked")),
        lines(
            "Scores not ranked",
            RATE,
            (rate("headrace_rows_total", "fate", f'{s},fate!="applied"'), "{{fate}}"),
        ),
        lines("Share ranked", RATIO, (f"{applied} / {every}", "ranked")),
    ]
