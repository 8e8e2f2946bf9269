"""Every panel of every dashboard is asked of the real engine and answers with data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from chdb import session as chdb_session
from prometheus_client import CollectorRegistry

from infra.grafana.generate import DASHBOARDS, FOLDER, generate, stale
from sinks.ads import EVENTS, HISTORY
from sinks.drivers.clickhouse import ddl
from streams import catalog
from streams.runtime.metrics import Metrics
from tests.observability.traffic import AGENTS, END_TO_END_MS, LAG, PARTITIONS

PROVISIONING = FOLDER.parent / "provisioning"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def targets(language: str) -> list[Any]:
    return [
        pytest.param(target[language], id=f"{name}: {panel['title']} {target['refId']}")
        for name, board in BOARDS.items()
        for panel in panels(board)
        for target in panel["targets"]
        if language in target
    ]


def expand(promql: str) -> str:
    for name, value in {
        "$__rate_interval": "4s",
        "$__range": "10s",
        "$system": ".*",
        "$agent": ".*",
    }.items():
        promql = promql.replace(name, value)
    assert "$" not in promql
    return promql


def ask(prometheus: httpx.Client, promql: str) -> list[tuple[dict[str, str], float]]:
    answer = prometheus.get("/api/v1/query", params={"query": promql})
    assert answer.is_success, answer.text
    found = answer.json()["data"]["result"]
    return [(series["metric"], float(series["value"][1])) for series in found]


# What is committed


def test_the_committed_dashboards_are_what_the_code_says() -> None:
    assert stale() == []


def test_generate_repairs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "left-over.json").write_text("{}")
    (tmp_path / "ads.json").write_text("{}")
    changed = {path.name for path in generate(tmp_path)}
    assert changed == {"left-over.json", *(f"{name}.json" for name in DASHBOARDS)}
    assert stale(tmp_path) == []
    assert generate(tmp_path) == []


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_fit_for_provisioning(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == f"headrace-{name}"
    assert board["editable"] is False
    ids = [panel["id"] for panel in panels(board)]
    assert len(set(ids)) == len(ids)
    variables = {variable["name"] for variable in board["templating"]["list"]}
    for panel in panels(board):
        assert panel["datasource"]["uid"].strip("${}") in variables
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        assert panel["options"] is not None


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_overview_shows_every_metric_of_the_catalogue() -> None:
    text = json.dumps(BOARDS["overview"])
    shown = set(re.findall(r"\b(?:headrace|kafka|http_server)_\w+", text))
    shown = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in shown}
    known = {family.name for family in Metrics(CollectorRegistry()).registry.collect()}
    assert known <= shown
    assert shown <= known | {"headrace_overview"}


def test_provisioning_names_what_the_dashboards_need() -> None:
    sources = yaml.safe_load((PROVISIONING / "datasources/headrace.yaml").read_text())
    types = {source["type"] for source in sources["datasources"]}
    used = {panel["datasource"]["type"] for board in BOARDS.values() for panel in panels(board)}
    assert used == types
    providers = yaml.safe_load((PROVISIONING / "dashboards/headrace.yaml").read_text())
    assert all(provider["allowUiUpdates"] is False for provider in providers["providers"])


# PromQL, asked of a real Prometheus


@pytest.mark.parametrize("promql", targets("expr"))
def test_a_prometheus_panel_answers(prometheus: httpx.Client, promql: str) -> None:
    values = [value for _, value in ask(prometheus, expand(promql))]
    assert values
    assert any(math.isfinite(value) for value in values)


def test_the_labels_of_a_metric_win_over_those_of_its_target(prometheus: httpx.Client) -> None:
    series = ask(prometheus, "sum by (job, agent) (headrace_batches_total)")
    assert {(s["job"], s["agent"]) for s, _ in series} == {("worker", a) for _, a, _, _ in AGENTS}


def test_lag_and_latency_have_the_right_size(prometheus: httpx.Client) -> None:
    behind = ask(prometheus, "sum(kafka_consumergroup_lag)")
    assert behind == [({}, LAG * len(PARTITIONS) * len(AGENTS))]
    slowest = "histogram_quantile(0.99, sum by (le) (headrace_end_to_end_seconds_bucket))"
    ((_, p99_s),) = ask(prometheus, slowest)
    assert p99_s > END_TO_END_MS / 1000 / 2
    assert p99_s < END_TO_END_MS / 1000 * 10


def test_the_recorded_series_exist(prometheus: httpx.Client) -> None:
    lag = {
        labels["agent"]: value
        for labels, value in ask(prometheus, "agent:kafka_consumergroup_lag:sum")
    }
    assert lag == {agent: LAG * len(PARTITIONS) for _, agent, _, _ in AGENTS}
    ratio = {
        labels["route"]: value
        for labels, value in ask(prometheus, "route:http_server_request_errors:ratio_rate5m")
    }
    assert ratio["/v1/ads/events"] == pytest.approx(0.5)


# SQL, asked of the ClickHouse engine


COLUMNS = {
    "offset": "Int64",
    "kind": "Nullable(String)",
    "event_id": "Nullable(String)",
    "user_id": "Nullable(String)",
    "campaign_id": "Nullable(String)",
    "ad_id": "Nullable(String)",
    "event_time": "Nullable(DateTime64(3, 'UTC'))",
    "country": "Nullable(String)",
    "cost_micros": "Nullable(Int64)",
    "user_agent": "Nullable(String)",
    "impression_id": "Nullable(String)",
    "fate": "Nullable(String)",
    "_partition": "Int32",
}
"""As the driver makes them: values are nullable."""


def test_the_sample_table_has_the_columns_of_the_read_model() -> None:
    assert list(COLUMNS) == [*EVENTS.columns, "_partition"]


def sampled(engine: chdb_session.Session, view: str, columns: Mapping[str, Any]) -> None:
    """A table in place of a view, with one row of noon and of level ERROR."""
    kinds = {name: ddl._nullable(dtype) for name, dtype in columns.items()}
    shown = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    engine.query(f"CREATE TABLE {view} ({shown}) ENGINE = MergeTree ORDER BY tuple()")
    noon_ms = int(NOON.timestamp() * 1_000)
    row = {
        name: "2026-11-01 12:00:00.250" if "DateTime" in kind
        else "ERROR" if name == "level"
        else noon_ms if name.endswith("_ms")
        else [] if kind.startswith("Array")
        else "x" if "String" in kind
        else 1
        for name, kind in kinds.items()
    }  # fmt: skip
    engine.query(f"INSERT INTO {view} FORMAT JSONEachRow {json.dumps(row)}")


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chdb_session.Session]:
    engine = chdb_session.Session(str(tmp_path_factory.mktemp("clickhouse")))
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    engine.query(f"CREATE TABLE rows ({columns}) ENGINE = MergeTree ORDER BY (_partition, offset)")
    view = ddl.view(HISTORY.name, EVENTS.name)
    engine.query(f"CREATE VIEW {view} AS SELECT * FROM rows")
    for system in map(catalog.load, catalog.SYSTEMS):
        for one in system.projections:
            if one.store == "clickhouse" and one.model.name != HISTORY.name:
                for table in one.model.tables:
                    sampled(engine, ddl.view(one.model.name, table.name), table.columns)
    rows = [
        (
            f"u{i % 7}",
            f"c{i % 3}",
            f"a{i}",
            kind,
            f"2026-11-01 12:{i % 60:02}:00.250",
            country,
            fate,
        )
        for i, (kind, country, fate) in enumerate(
            (kind, country, fate)
            for kind in ("impression", "impression", "click")
            for country in ("NL", "DE")
            for fate in ("applied", "applied", "duplicate", "late", "filtered")
        )
    ]
    values = ",".join(
        f"({offset},'{kind}','e{offset}','{user}','{campaign}','{ad}','{at}','{country}',1500,"
        f"NULL,NULL,'{fate}',0)"
        for offset, (user, campaign, ad, kind, at, country, fate) in enumerate(rows)
    )
    engine.query(f"INSERT INTO rows ({', '.join(COLUMNS)}) VALUES {values}")
    yield engine
    engine.close()


def sql(engine: chdb_session.Session, query: str) -> list[dict[str, Any]]:
    """Answer a panel's query with the plugin's macros replaced as the plugin does."""
    begin, end = (int((NOON + timedelta(hours=h)).timestamp()) for h in (0, 1))
    query = re.sub(
        r"\$__timeFilter\(((?:[^()]|\([^()]*\))+)\)",
        rf"\1 >= toDateTime({begin}) AND \1 <= toDateTime({end})",
        query,
    )
    query = re.sub(
        r"\$__timeInterval\((\w+)\)",
        r"toStartOfInterval(toDateTime(\1), INTERVAL 60 second)",
        query,
    )
    assert "$" not in query
    text = str(engine.query(query, "JSONEachRow"))
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("query", targets("rawSql"))
def test_a_clickhouse_panel_answers(clickhouse: chdb_session.Session, query: str) -> None:
    assert sql(clickhouse, query)


def test_the_ads_panels_add_up(clickhouse: chdb_session.Session) -> None:
    by_title = {
        panel["title"]: sql(clickhouse, panel["targets"][0]["rawSql"])
        for panel in panels(BOARDS["ads"])
        if "rawSql" in panel["targets"][0]
    }
    counted = by_title["Counted events"]
    assert sum(row["impressions"] for row in counted) == 8
    assert sum(row["clicks"] for row in counted) == 4
    assert sum(row["events"] for row in by_title["Events by fate"]) == 30
    assert sum(row["events"] for row in by_title["Not counted"]) == 18
    assert sum(row["clicks"] for row in by_title["Clicks by country"]) == 4
    assert sum(row["cost"] for row in by_title["Campaigns"]) == pytest.approx(12 * 0.0015)
