"""The command line: what it prints for people, for programs, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException
from typer.testing import CliRunner

from infra.cli import schemas as schemas_cli
from infra.cli import topics as topics_cli
from schemas.apply import (
    ConfigChange,
    Difference,
    KafkaUnavailable,
    PartitionsDiffer,
    Report,
    Wanted,
)
from schemas.catalog import derived, topics
from schemas.check import Finding
from schemas.registry import RegistryRefused, RegistryUnavailable, subjects
from streams.runtime.decider.records import CONTROL_RECORDS

Run = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "dumb")

    def invoke(app: typer.Typer, *arguments: str) -> Any:
        return CliRunner().invoke(app, list(arguments))

    return invoke


COMMANDS = [(topics_cli.app, c) for c in ("list", "describe", "apply")]
COMMANDS += [(schemas_cli.app, c) for c in ("list", "show", "generate", "asyncapi", "check")]


@pytest.mark.parametrize(("app", "command"), COMMANDS)
def test_help_shows_an_example(run: Run, app: typer.Typer, command: str) -> None:
    done = run(app, command, "--help")
    assert done.exit_code == 0
    assert f"headrace {'topics' if app is topics_cli.app else 'schemas'} {command}" in done.output


def test_topics_are_listed(run: Run) -> None:
    done = run(topics_cli.app, "list")
    assert done.exit_code == 0
    for name, topic in topics().items():
        assert name in done.output
        assert all(record.name in done.output for record in topic.records)
    as_json = json.loads(run(topics_cli.app, "list", "--json").output)
    assert [t["name"] for t in as_json] == list(topics())


def test_names_are_whole_on_a_narrow_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "…" not in run(topics_cli.app, "list").output


@pytest.mark.parametrize("name", sorted(topics()))
def test_a_topic_is_described(run: Run, name: str) -> None:
    done = run(topics_cli.app, "describe", name)
    assert done.exit_code == 0
    for record in topics()[name].records:
        assert record.fullname in done.output
        assert all(column in done.output for column in record.columns)
    as_json = json.loads(run(topics_cli.app, "describe", name, "--json").output)
    assert as_json["kafka"].keys() == {name, *derived(topics()[name])}
    assert as_json["readers"]


def test_an_unknown_topic_is_explained(run: Run) -> None:
    done = run(topics_cli.app, "describe", "ads.event")
    assert done.exit_code == 2
    assert "did you mean ads.events" in done.output


REPORT = Report(
    create=(Wanted("ads.events", 4, {}),),
    alter=(ConfigChange("ads.events", "retention.ms", "1", "-1"),),
    register=tuple(subjects(topics()["ads.events"])),
    unknown=("ads.old",),
)


def test_a_report_says_what_was_done(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_cli, "apply_catalogue", lambda settings: REPORT)
    done = run(topics_cli.app, "apply")
    assert done.exit_code == 0
    assert "topic was created" in done.output
    assert "retention.ms: 1 → -1" in done.output
    assert "ads.old" in done.output
    as_json = json.loads(run(topics_cli.app, "apply", "--json").output)
    assert as_json["create"] == ["ads.events"]
    assert as_json["unknown"] == ["ads.old"]


def test_nothing_to_do_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_cli, "apply_catalogue", lambda settings: Report())
    done = run(topics_cli.app, "apply")
    assert (done.exit_code, "Nothing to do" in done.output) == (0, True)


def test_a_dry_run_changes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(settings: object) -> Report:
        raise AssertionError("a dry run applied")

    monkeypatch.setattr(topics_cli, "apply_catalogue", never)
    monkeypatch.setattr(topics_cli, "plan_catalogue", lambda settings: REPORT)
    done = run(topics_cli.app, "apply", "--dry-run")
    assert (done.exit_code, "would be created" in done.output) == (0, True)
    differs = Report(partitions=(Difference("ads.events", 4, 2),))
    monkeypatch.setattr(topics_cli, "plan_catalogue", lambda settings: differs)
    done = run(topics_cli.app, "apply", "--dry-run")
    assert (done.exit_code, "declared 4, actual 2" in done.output) == (3, True)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PartitionsDiffer((Difference("ads.events", 8, 4),)), 3, "nothing was changed"),
        (RegistryRefused("409 [incompatible]", 409), 4, "409 [incompatible]"),
        (RegistryUnavailable("connection refused"), 5, "registry does not answer"),
        (KafkaUnavailable("127.0.0.1:9: no"), 5, "Kafka does not answer"),
        (KafkaException(KafkaError(KafkaError.INVALID_CONFIG)), 4, "Kafka refused"),
    ],
)
def test_failures_are_explained(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, said: str
) -> None:
    def fail(settings: object) -> Report:
        raise error

    monkeypatch.setattr(topics_cli, "apply_catalogue", fail)
    done = run(topics_cli.app, "apply")
    assert done.exit_code == code
    assert said in done.output
    assert "Traceback" not in done.output


def test_unknown_settings_are_explained(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_KAFFKA__BOOTSTRAP_SERVERS", "x")
    for arguments in (("apply",), ("describe", "ads.events")):
        done = run(topics_cli.app, *arguments)
        assert (done.exit_code, "HEADRACE_KAFFKA" in done.output) == (2, True)


def test_a_bug_is_not_explained_away(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: object) -> Report:
        raise ZeroDivisionError

    monkeypatch.setattr(topics_cli, "apply_catalogue", fail)
    assert isinstance(run(topics_cli.app, "apply").exception, ZeroDivisionError)


def test_schemas_are_listed_and_shown(run: Run) -> None:
    assert "ads.AdClicked" in run(schemas_cli.app, "list").output
    as_json = json.loads(run(schemas_cli.app, "list", "--json").output)
    assert {row["subject"] for row in as_json} == {
        topic.subject(record)
        for topic in topics().values()
        for record in topic.records
        if record not in CONTROL_RECORDS
    }
    for name in ("AdClicked", "headrace.ads.AdClicked"):
        assert json.loads(run(schemas_cli.app, "show", name).output)["name"] == "AdClicked"
    example = json.loads(run(schemas_cli.app, "show", "AdClicked", "--example").output)
    assert example["click_id"]
    done = run(schemas_cli.app, "show", "AdSeen")
    assert (done.exit_code, "AdClicked" in done.output) == (2, True)


def test_generation_is_up_to_date(run: Run) -> None:
    assert run(schemas_cli.app, "generate").output == "up to date\n"


def test_the_document_is_printed(run: Run) -> None:
    assert json.loads(run(schemas_cli.app, "asyncapi").output)["asyncapi"] == "3.0.0"


def test_check_fails_where_something_breaks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("headrace.ads.AdClicked", "v1 → v2", "AdClicked.x[]: added")
    monkeypatch.setattr("schemas.check.check_versions", lambda systems: [finding])
    monkeypatch.setattr("schemas.check.check_git", lambda systems, revision: [])
    done = run(schemas_cli.app, "check", "--no-registry")
    assert done.exit_code == 1
    assert "AdClicked.x[]: added" in done.output
    as_json = json.loads(run(schemas_cli.app, "check", "--no-registry", "--json").output)
    assert as_json == [
        {"subject": finding.subject, "against": finding.against, "what": finding.what}
    ]


def test_check_passes_where_nothing_does(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.check.check_git", lambda systems, revision: [])
    done = run(schemas_cli.app, "check", "--no-registry")
    assert (done.exit_code, "No breaks" in done.output) == (0, True)


@pytest.mark.stack
def test_check_asks_the_registry(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.check.check_git", lambda systems, revision: [])
    done = run(schemas_cli.app, "check")
    assert (done.exit_code, "and the registry" in done.output) == (0, True)
