"""Logs and metrics: lines by level, what came late, the worst services, the largest metrics."""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, edge, flow, now, trouble
from infra.grafana.panels import COUNT, RATIO, fill, sql_lines, sql_table, system_page
from infra.grafana.queries import TELEMETRY_SQL, select_system


def dashboard() -> Any:
    """Dashboard `headrace-telemetry`."""
    s, g = select_system("telemetry")
    return fill(
        system_page(
            "telemetry",
            "Lines and series: how many, of whom, how late.",
            clickhouse=True,
            title="logs and metrics",
        ),
        ("Now", now(s, g)),
        ("Logs (ClickHouse)", _logs()),
        ("Edge", edge("telemetry")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _logs() -> list[Any]:
    return [
        sql_lines("Lines by level", COUNT, TELEMETRY_SQL["lines"], "By event time, as counted."),
        sql_lines(
            "Late lines", COUNT, TELEMETRY_SQL["late"], "Came when their minute had been counted."
        ),
        sql_table(
            "Services",
            TELEMETRY_SQL["services"],
            "Most errors first.",
            units={"error_share": RATIO},
        ),
        sql_table("Series by metric", TELEMETRY_SQL["series"]),
        sql_table("Latest errors", TELEMETRY_SQL["errors"]),
    ]
