"""Ads: what was counted, asked of ClickHouse, beside the questions of every system."""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import COUNT, RATIO, fill, sql_lines, sql_table, system_page
from infra.grafana.queries import ADS_SQL, select_system


def dashboard() -> Any:
    """Dashboard `headrace-ads`."""
    s, g = select_system("ads")
    return fill(
        system_page(
            "ads",
            "Impressions and clicks: what was counted, what was not and why.",
            clickhouse=True,
        ),
        ("Now", now(s, g)),
        ("Results (ClickHouse)", _results()),
        ("Edge", edge("ads")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _results() -> list[Any]:
    return [
        sql_lines("Counted events", COUNT, ADS_SQL["counted"], "By event time."),
        sql_lines("Events by fate", COUNT, ADS_SQL["fates"], "All rows, whatever became of them."),
        sql_table(
            "Campaigns",
            ADS_SQL["campaigns"],
            "Counted events of the time shown, dearest first.",
            units={"click_through": RATIO},
        ),
        sql_table("Clicks by country", ADS_SQL["countries"]),
        sql_table("Not counted", ADS_SQL["refused"], "Duplicate, late and filtered events."),
    ]
