"""`headrace dashboards`: check tells, generate repairs."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from infra.cli.dashboards import app


def test_check_accepts_what_is_committed() -> None:
    answer = CliRunner().invoke(app, ["check"])
    assert (answer.exit_code, answer.stdout) == (0, "all dashboards are up to date\n")


def test_check_names_what_differs_and_generate_repairs_it(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    folder = ["--folder", str(tmp_path)]
    refused = CliRunner().invoke(app, ["check", *folder])
    assert refused.exit_code == 1
    assert "old.json" in refused.stderr
    repaired = CliRunner().invoke(app, ["generate", *folder])
    assert "deleted old.json" in repaired.stdout
    assert "wrote overview.json" in repaired.stdout
    assert CliRunner().invoke(app, ["check", *folder]).exit_code == 0
