"""Prometheus' own tools accept the rules, and every alert is proven to fire and to stay silent."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from infra.prometheus import HERE, render
from streams.runtime.metrics import Metrics

RULES = sorted((HERE / "rules").glob("*.yml"))
UNIT_TESTS = sorted((Path(__file__).parent / "rules").glob("*.test.yml"))

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (apt: prometheus)"
)
needs_amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is not installed (apt: prometheus-alertmanager)"
)


def rules(kind: str) -> list[dict[str, Any]]:
    groups = [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    assert f"{len(rules('alert'))} rules found" in run("promtool", "check", "rules", *RULES)


@needs_promtool
@pytest.mark.parametrize("file", UNIT_TESTS, ids=lambda file: file.stem)
def test_the_rules_fire_and_stay_silent_as_told(file: Path) -> None:
    assert "SUCCESS" in run("promtool", "test", "rules", file)


@needs_promtool
@pytest.mark.parametrize("alertmanager", [None, "127.0.0.1:19093"])
def test_promtool_accepts_the_rendered_configuration(
    tmp_path: Path, alertmanager: str | None
) -> None:
    (tmp_path / "worker.json").write_text('[{"targets": ["127.0.0.1:1"], "labels": {}}]')
    config = tmp_path / "prometheus.yml"
    config.write_text(render(tmp_path, alertmanager=alertmanager))
    assert "2 rule files found" in run("promtool", "check", "config", config)


@needs_amtool
def test_amtool_accepts_the_routes() -> None:
    file = HERE / "alertmanager.yml"
    assert "SUCCESS" in run("amtool", "check-config", file)
    routed = ["amtool", "config", "routes", "test", f"--config.file={file}"]
    assert run(*routed, "severity=critical").split() == ["pages"]
    assert run(*routed, "severity=warning").split() == ["warnings"]


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    fires: set[str] = set()
    silent: set[str] = set()
    for file in UNIT_TESTS:
        for case in yaml.safe_load(file.read_text())["tests"]:
            name = case["name"].split()[0]
            (silent if "silent" in case["name"] else fires).add(name)
    alerts = {rule["alert"] for rule in rules("alert")}
    assert fires == alerts
    assert silent == alerts


def test_every_alert_says_what_it_means_and_what_to_do() -> None:
    for rule in rules("alert"):
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
        assert all(len(text) > 20 for text in rule["annotations"].values()), rule["alert"]
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_the_rules_name_only_metrics_of_the_catalogue() -> None:
    known = {family.name for family in Metrics(CollectorRegistry()).registry.collect()}
    recorded = {rule["record"] for rule in rules("record")}
    for rule in rules("expr"):
        text = rule["expr"]
        for name in recorded:
            text = text.replace(name, "")
        named = re.findall(r"\b(?:headrace|kafka|http_server)_\w+", text)
        assert {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in named} <= known


def test_alerts_are_inhibited_only_by_alerts_that_exist() -> None:
    config = yaml.safe_load((HERE / "alertmanager.yml").read_text())
    text = str(config["inhibit_rules"])
    assert set(re.findall(r"Headrace\w+", text)) <= {rule["alert"] for rule in rules("alert")}
