"""How a question is drawn: a few panel makers over Grafana's foundation SDK.

Each takes a title, a Grafana unit and queries, and answers a builder that a dashboard places
left to right. Data sources are variables, so that a dashboard works in any Grafana.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model

PROMETHEUS = model.DataSourceRef(type_val="prometheus", uid="${prometheus}")
CLICKHOUSE = model.DataSourceRef(type_val="grafana-clickhouse-datasource", uid="${clickhouse}")

SECONDS, RATE, COUNT, RATIO, BYTES = "s", "ops", "short", "percentunit", "bytes"


@dataclass(frozen=True)
class ClickHouseQuery:
    """A query of the ClickHouse plugin (version 4), both built and builder of itself."""

    sql: str
    series: bool
    ref_id: str = "A"

    def build(self) -> ClickHouseQuery:
        """This query: the SDK asks builders."""
        return self

    def to_json(self) -> dict[str, Any]:
        """As the plugin reads it."""
        return {
            "refId": self.ref_id,
            "datasource": CLICKHOUSE,
            "pluginVersion": "4.0.0",  # without it the plugin takes the query for version 3
            "editorType": "sql",
            "queryType": "timeseries" if self.series else "table",
            "format": 0 if self.series else 1,
            "rawSql": self.sql.strip(),
        }


def _promql(expr: str, legend: str, ref: str, *, instant: bool = False) -> Any:
    query = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref)
    return (query.instant() if instant else query.range()).datasource(PROMETHEUS)


def lines(title: str, unit: str, *queries: tuple[str, str], about: str = "") -> Any:
    """Curves over time, a third of the page wide; `queries` are (PromQL, legend)."""
    panel = _curves(title, unit, about).datasource(PROMETHEUS)
    for index, (expr, legend) in enumerate(queries):
        panel.with_target(_promql(expr, legend, chr(ord("A") + index)))
    return panel


def figure(title: str, unit: str, expr: str, *, red_above: float | None = None) -> Any:
    """One number, now; red above a limit where there is one."""
    last = common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)
    panel = stat.Panel().title(title).unit(unit).span(4).height(4).datasource(PROMETHEUS)
    panel.reduce_options(last).graph_mode(common_model.BigValueGraphMode.AREA)
    if red_above is not None:
        panel.thresholds(_red_above(red_above)).color_mode(common_model.BigValueColorMode.VALUE)
    return panel.with_target(_promql(expr, title, "A"))


def sql_lines(title: str, unit: str, sql: str, about: str = "") -> Any:
    """Curves over time from ClickHouse; the first column is the time."""
    panel = _curves(title, unit, about).span(12).datasource(CLICKHOUSE)
    return panel.with_target(ClickHouseQuery(sql, series=True))


def sql_table(title: str, sql: str, about: str = "", *, units: dict[str, str] | None = None) -> Any:
    """A table from ClickHouse; `units` are Grafana units by column."""
    panel = table.Panel().title(title).description(about).span(12).height(9).show_header(True)
    for column, unit in (units or {}).items():
        panel.override_by_name(column, [model.DynamicConfigValue(id_val="unit", value=unit)])
    return panel.datasource(CLICKHOUSE).with_target(ClickHouseQuery(sql, series=False))


def row(title: str) -> Any:
    """A heading over the panels that follow."""
    return dashboard.Row(title)


def system_page(name: str, about: str, *, title: str = "", clickhouse: bool = False) -> Any:
    """An empty dashboard of one system, named after it."""
    return page(
        f"headrace-{name}",
        f"Headrace: {title or name}",
        about,
        clickhouse=clickhouse,
        filters=False,
    )


def page(uid: str, title: str, about: str, *, clickhouse: bool, filters: bool) -> Any:
    """An empty dashboard with its data source variables, read-only, the last hour."""
    made = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(about)
        .tags(["headrace"])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("10s")
        .timezone("browser")
        .with_variable(
            dashboard.DatasourceVariable("prometheus").label("Prometheus").type("prometheus")
        )
        .link(
            dashboard.DashboardLink("Headrace")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(["headrace"])
            .as_dropdown(True)
            .keep_time(True)
        )
    )
    if clickhouse:
        made.with_variable(
            dashboard.DatasourceVariable("clickhouse")
            .label("ClickHouse")
            .type("grafana-clickhouse-datasource")
        )
    if filters:
        made.with_variable(_choice("system", "label_values(headrace_batches_total, system)"))
        made.with_variable(
            _choice("agent", 'label_values(headrace_batches_total{system=~"$system"}, agent)')
        )
    return made


def fill(made: Any, *rows: tuple[str, list[Any]]) -> Any:
    """Put titled rows of panels on a page and number the panels; answers the model."""
    number = 0
    for title, panels in rows:
        made.with_row(row(title))
        for panel in panels:
            number += 1
            made.with_panel(panel.id(number))
    return made.build()


def _choice(name: str, query: str) -> Any:
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .query(query)
        .datasource(PROMETHEUS)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def _curves(title: str, unit: str, about: str) -> Any:
    legend = (
        common.VizLegendOptions()
        .display_mode(common_model.LegendDisplayMode.LIST)
        .placement(common_model.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel = timeseries.Panel().title(title).unit(unit).min(0).span(8).height(8)
    panel.fill_opacity(8).show_points(common_model.VisibilityMode.NEVER).legend(legend)
    return panel.description(about) if about else panel


def _red_above(limit: float) -> Any:
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps(
            [
                model.Threshold(value=None, color="green"),
                model.Threshold(value=limit, color="red"),
            ]
        )
    )
