"""Short links: what is decided, and which clicks count, beside every system's questions."""

from __future__ import annotations

from typing import Any

from infra.grafana.decisions import decisions
from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import RATE, fill, lines, system_page
from infra.grafana.queries import rate, select_system


def dashboard() -> Any:
    """Dashboard `headrace-links`."""
    s, g = select_system("links")
    return fill(
        system_page(
            "links",
            "Short links: made, followed, counted.",
            clickhouse=True,
        ),
        ("Now", now(s, g)),
        ("Clicks", _clicks(s)),
        ("Decisions", decisions(s)),
        ("Edge", edge("links")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _clicks(s: str) -> list[Any]:
    of = f'{s},agent="links-clicks"'
    return [
        lines(
            "Clicks",
            RATE,
            (rate("headrace_rows_total", "", f'{of},fate="applied"'), "of people"),
            (rate("headrace_rows_total", "", f'{of},fate="filtered"'), "of bots, and HEAD"),
        )
    ]
