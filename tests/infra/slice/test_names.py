"""Names of a new system: what is refused, with which words, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.cli.new import app
from infra.local.home import CHECKOUT
from infra.slice import begin, lists
from infra.slice.names import BadName, Names
from streams.catalog import SYSTEMS
from tests.infra.slice.conftest import copied

RUN = CliRunner()


@pytest.mark.parametrize(
    ("name", "event", "message"),
    [
        ("UrlShortener", None, "not snake_case, for example url_shortener"),
        ("url-shortener", None, "for example url_shortener"),
        ("9lives", None, "not snake_case"),
        ("a__b", None, "not snake_case"),
        ("", None, "not snake_case"),
        ("../etc", None, "not snake_case"),
        ("class", None, "keyword"),
        ("match", None, "keyword"),
        ("x" * 31, None, "longer than 30"),
        ("tryouts", "tryoutHeld", "CamelCase"),
        ("tryouts", "Held", "CamelCase"),
        ("tryouts", "Tryout_Held", "CamelCase"),
        ("tryouts", "P" + "o" * 30 + "Held" + "x" * 9, "longer than 40"),
        *[(name, None, "a system already") for name in SYSTEMS],
        ("catalog", None, r"taken by (streams|schemas)/catalog\.py"),
        ("runtime", None, "taken by streams/runtime"),
        ("overview", None, r"taken by infra/grafana/dashboards/overview\.json"),
        ("health", None, r"something else in api/app\.py"),
        ("kafka", None, r"something else in api/app\.py|taken by"),
        ("tryouts", "AdClicked", "an event of ads"),
        ("tryouts", "ReadModel", "something else in the new files"),
        ("tryouts", "LatenessMs", "something else in the new files"),
    ],
)
def test_a_bad_name_is_refused(name: str, event: str | None, message: str) -> None:
    with pytest.raises(BadName, match=message):
        begin.planned(Names.of(name, event))


def test_what_only_caches_are_left_of_is_free(tmp_path: Path) -> None:
    root = copied(tmp_path)
    (root / "tests/tryouts/__pycache__").mkdir(parents=True)
    (root / "tests/tryouts/__pycache__/x.pyc").touch()
    assert begin.planned(Names.of("tryouts"), root).new
    (root / "tests/tryouts/test_old.py").touch()
    with pytest.raises(BadName, match="taken by tests/tryouts"):
        begin.planned(Names.of("tryouts"), root)


def test_the_event_is_named_after_the_system_by_default() -> None:
    words = Names.of("url_shortener").words
    assert words["event"] == "UrlShortenerRecorded"
    assert words["constant"] == "URL_SHORTENER_RECORDED"
    assert words["title"] == "Url shortener"
    assert words["pascal"] == "UrlShortener"


def test_a_list_that_is_gone_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    root = copied(tmp_path)
    app_py = root / "api/app.py"
    app_py.write_text(app_py.read_text().replace("ROUTERS", "ROUTES"))
    with pytest.raises(lists.NoPlace, match=r"api/app\.py: .* list ROUTERS; nothing was written"):
        begin.planned(Names.of("tryouts"), root)
    app_py.unlink()
    with pytest.raises(lists.NoPlace, match=r"api/app\.py is missing"):
        begin.planned(Names.of("tryouts"), root)
    assert not list(root.rglob("*tryouts*"))


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    root = copied(tmp_path)
    made = begin.planned(Names.of("tryouts"), root)
    (root / "sinks/tryouts.py").write_text("mine")
    with pytest.raises(FileExistsError):
        begin.write(made, root)
    assert (root / "sinks/tryouts.py").read_text() == "mine"
    assert "tryouts" not in (root / "streams/catalog.py").read_text()


def test_a_dry_run_lists_the_files_and_writes_none() -> None:
    shown = RUN.invoke(app, ["tryouts", "--event", "TryoutHeld", "--dry-run"])
    assert shown.exit_code == 0
    files = dict(reversed(line.split(" ", 1)) for line in shown.stdout.splitlines())
    made = begin.planned(Names.of("tryouts", "TryoutHeld"))
    assert {path for path, mark in files.items() if mark == "+"} == {*made.new, *made.derived}
    assert {path for path, mark in files.items() if mark == "~"} == {*made.changed, *begin.REMADE}
    assert not [path for path in (*made.new, *made.derived) if (CHECKOUT / path).exists()]


def test_a_bad_name_on_the_command_line_is_a_usage_error() -> None:
    shown = RUN.invoke(app, ["ads"])
    assert shown.exit_code == 2
    assert "a system already" in shown.output
