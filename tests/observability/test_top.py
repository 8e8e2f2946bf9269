"""`headrace top`: rates from two looks, from real `/metrics` text."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli import top
from infra.prometheus.scrape import BadTargets, Frame, Target, discover, scrape
from tests.observability.conftest import Exporter
from tests.observability.traffic import AGENTS, LAG, PARTITIONS

LABELS = (("system", "ads"), ("agent", "ads-windows"), ("topic", "ads.events"))


def frame(taken_s: float, **values: float) -> Frame:
    """A frame of row counters by fate, with the sample that makes the agent known."""
    rows = {
        ("w:1", "headrace_rows_total", frozenset({*LABELS, ("fate", fate)})): rows
        for fate, rows in values.items()
    }
    return Frame(taken_s, {("w:1", "headrace_batches_total", frozenset(LABELS)): 1.0, **rows})


def test_rates_are_per_second_of_the_time_between_the_looks() -> None:
    (row,) = top.agents(frame(10, applied=100, late=0), frame(12, applied=300, late=10))
    assert (row.rows_rate, row.unapplied_rate) == (105, 5)


def test_a_restarted_worker_counts_from_zero_and_never_backwards() -> None:
    (row,) = top.agents(frame(10, applied=1_000), frame(11, applied=40))
    assert row.rows_rate == 40


def test_a_series_that_is_new_counts_in_full() -> None:
    (row,) = top.agents(frame(10), frame(11, applied=7))
    assert row.rows_rate == 7


@pytest.mark.parametrize(
    ("q", "buckets", "expected"),
    [
        (0.5, [(1, 10), (2, 10), (math.inf, 10)], 0.5),
        (0.99, [(1, 0), (2, 100), (math.inf, 100)], 1.99),
        (0.99, [(1, 50), (math.inf, 100)], 1),
        (0.5, [(1, 5), (math.inf, 5), (1, 5), (math.inf, 5)], 0.5),
    ],
)
def test_quantiles_are_those_of_prometheus(
    q: float, buckets: list[tuple[float, float]], expected: float
) -> None:
    assert top.quantile(q, buckets) == pytest.approx(expected)


def test_no_observation_has_no_quantile() -> None:
    assert math.isnan(top.quantile(0.99, []))
    assert math.isnan(top.quantile(0.99, [(1, 0), (math.inf, 0)]))


def test_a_scrape_reads_every_target_and_lists_those_that_are_down(exporter: Exporter) -> None:
    before = scrape(discover(exporter.targets))
    after = scrape([*discover(exporter.targets), Target("127.0.0.1:9")])
    assert after.down == ("127.0.0.1:9",)
    found = top.agents(before, after)
    assert [row.agent for row in found] == sorted(agent for _, agent, _, _ in AGENTS)
    for row in found:
        assert row.lag == LAG * len(PARTITIONS)
        assert row.partitions == len(PARTITIONS)
        assert row.rows_rate > 0
        assert 0.025 <= row.end_to_end_p99_s <= 0.5
        assert all(count > 0 for count in row.errors.values())
    assert {row.route for row in top.routes(before, after)} == {
        f"/v1/{system}/events" for system, _, _, _ in AGENTS
    }


def test_once_prints_one_frame(exporter: Exporter) -> None:
    asked = ["--once", "--interval", "0.1", "--targets", str(exporter.targets)]
    shown = CliRunner().invoke(top.app, asked, env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    for _, agent, _, _ in AGENTS:
        assert f"{agent}: " in shown.stdout
    assert "fence refusals" in shown.stdout
    assert "/v1/ads/events" in shown.stdout


def test_live_until_interrupted(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("infra.cli.top.time.sleep", sleep)
    answer = CliRunner().invoke(top.app, ["--targets", str(exporter.targets)])
    assert looks == [1.0, 1.0, 1.0]
    assert answer.exit_code == 0, answer.output
    assert "ads-windows" in answer.stdout


def test_without_workers_it_says_how_to_start_one(tmp_path: Path) -> None:
    answer = CliRunner().invoke(top.app, ["--once", "--targets", str(tmp_path)])
    assert answer.exit_code == 1
    assert "no worker runs" in answer.stderr


@pytest.mark.parametrize("text", ["{", '{"targets": []}', '[{"labels": {}}]', "[3]"])
def test_a_file_that_is_no_target_list_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "worker-3.json").write_text(text)
    with pytest.raises(BadTargets, match=r"worker-3\.json"):
        discover(tmp_path)


def test_targets_keep_their_labels(tmp_path: Path) -> None:
    listed = [{"targets": ["h:1", "h:2"], "labels": {"job": "worker"}}, {"targets": ["h:3"]}]
    (tmp_path / "a.json").write_text(json.dumps(listed))
    worker = {"job": "worker"}
    assert discover(tmp_path) == [Target("h:1", worker), Target("h:2", worker), Target("h:3", {})]
