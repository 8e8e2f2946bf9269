"""The news feed: what is decided and what goes into feeds, beside every system's questions."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import RATE, RATIO, fill, lines, system_page
from infra.grafana.queries import rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-feed`."""
    s, g = select_system("feed")
    return fill(
        system_page("feed", "Posts and follows: decided, put into feeds, read."),
        ("Now", now(s, g)),
        ("Fan-out", _fan_out(s)),
        ("Decisions", decisions(s)),
        ("Edge", edge("feed")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _fan_out(s: str) -> list[Any]:
    of = f'{s},agent="feed-home"'
    applied = rate("headrace_rows_total", "", f'{of},fate="applied"')
    repeats = rate("headrace_rows_total", "", f'{of},fate="duplicate"')
    return [
        lines("Posts and changes put into feeds", RATE, (applied, "applied")),
        lines(
            "Follows that change nothing",
            RATIO,
            (f"{repeats} / ({applied} + {repeats})", "of all"),
        ),
    ]
