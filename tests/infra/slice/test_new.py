"""`headrace new`, for real: in a copy of the project the new system is clean, listed everywhere,
works end to end, and has one failing test, which passes once its message is followed.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from infra.slice import begin, lists
from infra.slice.names import Names
from streams.catalog import SYSTEMS
from tests.infra.slice.conftest import copied, headrace, run

pytestmark = pytest.mark.slow
FAILS = "test_an_event_counts_once_however_often_it_is_delivered"


@pytest.fixture(scope="module")
def tryouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with a new system."""
    root = copied(tmp_path_factory.mktemp("project"))
    made = headrace(root, "new", "tryouts", "--event", "TryoutHeld")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "headrace test --no-stack tests/tryouts" in made.stdout
    return root


def test_all_that_was_planned_is_there(tryouts: Path) -> None:
    made = begin.planned(Names.of("tryouts", "TryoutHeld"))
    assert not [path for path in (*made.new, *made.derived) if not (tryouts / path).is_file()]


def test_lint_and_format_are_clean(tryouts: Path) -> None:
    lint(tryouts, Names.of("tryouts", "TryoutHeld"))


def lint(root: Path, *systems: Names) -> None:
    made = [begin.planned(names) for names in systems]
    paths = {path for one in made for path in (*one.new, *one.changed, *one.derived)}
    sources = sorted(path for path in paths if path.endswith(".py"))
    for command in (["check"], ["format", "--check"]):
        done = run(root, "-m", "ruff", *command, "--no-cache", *sources)
        assert done.returncode == 0, done.stdout


def test_the_longest_names_and_a_second_system_are_clean_too(tmp_path: Path) -> None:
    root = copied(tmp_path / "copy")
    longest = Names.of("x" + "_y" * 14 + "z", "P" + "o" * 19 + "M" + "e" * 19)
    first = Names.of("aaa")
    for names in (longest, first):
        made = headrace(root, "new", names.system, "--event", names.event)
        assert made.returncode == 0, made.stdout + made.stderr
    lint(root, longest, first)
    for path in ("streams/catalog.py", "schemas/catalog.py"):
        listed = lists.strings((root / path).read_text(), "SYSTEMS")
        assert listed == tuple(sorted([*SYSTEMS, longest.system, first.system]))


def test_types_are_clean(tryouts: Path) -> None:
    files = [
        *("api/app.py", "api/routes/tryouts.py", "sinks/tryouts.py", "streams/tryouts.py"),
        *("schemas/tryouts/events.py", "infra/grafana/generate.py", "tests/tryouts/test_rules.py"),
        "infra/grafana/systems/tryouts.py",
    ]
    done = run(tryouts, "-m", "mypy", "--cache-dir", str(tryouts / ".mypy"), *files)
    assert done.returncode == 0, done.stdout


def test_the_imports_keep_to_the_arrow(tryouts: Path) -> None:
    done = run(tryouts, "-c", "from importlinter.cli import lint_imports_command as c; c()")
    assert done.returncode == 0, done.stdout


def test_the_layout_test_finds_nothing_wrong_with_it(tryouts: Path) -> None:
    done = run(tryouts, "-m", "pytest", "-q", "tests/repo", "-p", "no:cacheprovider", "-rfE")
    assert not [line for line in done.stdout.splitlines() if "tryouts" in line]
    assert "passed" in done.stdout


def test_generating_again_leaves_no_diff(tryouts: Path) -> None:
    for command, answer in (
        (["schemas", "generate"], "up to date"),
        (["dashboards", "check"], "all dashboards are up to date"),
        (["where", "--write"], ""),
    ):
        done = headrace(tryouts, *command)
        assert (done.returncode, done.stdout.strip()) == (0, answer), done.stderr


def test_wherever_all_systems_are_listed_it_is_listed(tryouts: Path) -> None:
    """Also in lists that were made after `headrace new`: then `begin` has to learn of them.

    Not in the demo: a scenario is real data and an independent recount, which nobody can generate.
    """
    folders = ("api", "connectors", "infra", "schemas", "sinks", "streams")
    modules = [path for folder in folders for path in (tryouts / folder).rglob("*.py")]
    listing = {path for path in modules if set(SYSTEMS) <= words(path)}
    names = {path.relative_to(tryouts).as_posix() for path in listing}
    assert names >= {"api/app.py", "infra/grafana/generate.py", "streams/catalog.py"}
    assert {path for path in listing if "tryouts" not in words(path)} <= {
        tryouts / "infra/demo/scenarios.py"
    }


def words(path: Path) -> set[str]:
    """Strings, names and imported names of a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Constant(value=str(word)) | ast.Name(id=word) | ast.alias(name=word):
                found.add(word)
    return found


def rules(root: Path) -> tuple[str, str]:
    """The names of the failing rule tests, and what pytest said."""
    done = run(root, "-m", "pytest", "-q", "tests/tryouts", "-p", "no:cacheprovider", "-rf")
    return " ".join(re.findall(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)), done.stdout


def test_one_test_fails_and_says_what_to_write(tryouts: Path) -> None:
    failed, said = rules(tryouts)
    assert failed == FAILS
    assert "the first rule to write,\nE         in streams/tryouts.py:" in said
    assert re.search(r"^1 failed, \d+ passed", said, re.MULTILINE)


def test_it_works_end_to_end_in_memory(tryouts: Path) -> None:
    flow = tryouts / "tests/tryouts/test_flow.py"
    shutil.copy(Path(__file__).with_name("flow.py"), flow)
    done = run(tryouts, "-m", "pytest", "-q", str(flow), "-p", "no:cacheprovider")
    flow.unlink()
    assert "2 passed" in done.stdout, done.stdout


RULE = '''
def judge(state: State, batch: Batch) -> tuple[State, pl.DataFrame]:
    """The batch's events with their `fate`."""
    late = pl.col("event_time").dt.epoch("ms") + LATENESS_MS <= pl.col(WATERMARK)
    timely = batch.frame.filter(~late)
    seen, verdict = state.seen.check(timely, batch.watermark_ms)
    fates = {Verdict.NEW: Fate.APPLIED, Verdict.DUPLICATE: Fate.DUPLICATE}
    judged = timely.with_columns(
        verdict.replace_strict(fates, default=Fate.FILTERED, return_dtype=pl.String).alias(FATE)
    )
    late_rows = batch.frame.filter(late).with_columns(pl.lit(Fate.LATE.value).alias(FATE))
    return replace(state, seen=seen), pl.concat([judged, late_rows]).sort(OFFSET)


def until(rows: pl.DataFrame) -> int | None:
    newest = rows.filter(pl.col(FATE) != Fate.LATE)["event_time"].dt.epoch("ms").max()
    return newest + LATENESS_MS if isinstance(newest, int) else None


class CountBySubject'''
MATTERS = """,
            open_until_ms=until(rows),
            open_from_offset=state.seen.open_from_offset,
        )
        return replace"""


def test_the_failing_test_passes_once_its_message_is_followed(tryouts: Path) -> None:
    fold = tryouts / "streams/tryouts.py"
    begun = fold.read_text()
    text = re.sub(r"\ndef judge\(.*?\nclass CountBySubject", lambda _: RULE, begun, flags=re.S)
    for old, new in (
        ("    totals: pl.DataFrame\n", "    totals: pl.DataFrame\n    seen: SeenIds\n"),
        (
            "State(totals=",
            'State(seen=SeenIds("event_id", "event_time", ("subject_id",), LATENESS_MS), totals=',
        ),
        (
            "from streams.runtime.sink",
            "from streams.runtime.seen import SeenIds, Verdict\nfrom streams.runtime.sink",
        ),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    try:
        fold.write_text(text)
        assert "test_batches_and_crashes_change_nothing" in rules(tryouts)[0]
        whole, found = re.subn(r",\n        \)\n        return replace", lambda _: MATTERS, text)
        assert found == 1
        fold.write_text(whole)
        failed, said = rules(tryouts)
        assert not failed, said
        assert " passed" in said
    finally:
        fold.write_text(begun)
