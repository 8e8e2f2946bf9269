"""One dashboard a system: the same questions as the overview, narrowed, and its own results."""

from __future__ import annotations

from typing import Any

from infra.grafana.overview import behind, flow, now, trouble
from infra.grafana.panels import (
    COUNT,
    RATE,
    RATIO,
    SECONDS,
    fill,
    lines,
    page,
    sql_lines,
    sql_table,
)
from infra.grafana.queries import ADS_SQL, error_ratio, quantile, rate, select_system


def ads() -> Any:
    """Dashboard `headrace-ads`."""
    s, g = select_system("ads")
    return fill(
        page(
            "headrace-ads",
            "Headrace: ads",
            "Impressions and clicks: what was counted, what was not and why.",
            clickhouse=True,
            filters=False,
        ),
        ("Now", now(s, g)),
        ("Results (ClickHouse)", _ads_results()),
        ("Edge", _edge("ads")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def leaderboard() -> Any:
    """Dashboard `headrace-leaderboard`."""
    s, g = select_system("leaderboard")
    return fill(
        page(
            "headrace-leaderboard",
            "Headrace: leaderboard",
            "Scores: how many, how soon they rank, and which were refused.",
            clickhouse=False,
            filters=False,
        ),
        ("Now", now(s, g)),
        ("Scores", _scores(s)),
        ("Edge", _edge("leaderboard")),
        ("Flow", flow(s)),
        ("Behind", behind(s, g)),
        ("Trouble", trouble(s)),
    )


def _ads_results() -> list[Any]:
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


def _edge(system: str) -> list[Any]:
    routes = f'route=~".*{system}.*"'
    requests = "http_server_request_duration_seconds"
    return [
        lines(
            "Events acknowledged",
            RATE,
            (rate("headrace_api_events_total", "topic", f'system="{system}"'), "{{topic}}"),
        ),
        lines(
            "Answer time, p99", SECONDS, (quantile(0.99, requests, "route", routes), "{{route}}")
        ),
        lines("Server errors", RATIO, (error_ratio(routes), "5xx")),
    ]
