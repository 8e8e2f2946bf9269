"""The shape of the project, kept by tests: one name per system in every folder, small pieces."""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("streams", "schemas", "connectors", "sinks", "api", "infra")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 400
UNFINISHED = re.compile(
    "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error"])
)
BINARY = (".png", ".jpg", ".gif", ".ico", ".avro", ".parquet", ".woff2")


def tracked() -> list[Path]:
    """Every file of the project that git knows or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


FILES = tracked()
MODULES = [f for f in FILES if f.suffix == ".py"]


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def systems() -> tuple[str, ...]:
    """`SYSTEMS` of the catalogue, read without importing it."""
    file = ROOT / "streams" / "catalog.py"
    if not file.exists():
        return ()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == "SYSTEMS" for t in targets):
                assert node.value is not None
                names: tuple[str, ...] = ast.literal_eval(node.value)
                return names
    raise AssertionError("streams/catalog.py has no literal SYSTEMS")


@pytest.mark.parametrize("system", systems())
@pytest.mark.parametrize(
    "places",
    [
        ("schemas/{}/topics.toml",),
        ("streams/{}.py", "streams/{}/__init__.py"),
        ("sinks/{}.py", "sinks/{}/__init__.py"),
        ("api/routes/{}.py", "api/routes/{}/__init__.py"),
        ("tests/{}",),
        ("infra/grafana/dashboards/{}.json",),
    ],
    ids=["schemas", "streams", "sinks", "api", "tests", "dashboard"],
)
def test_a_system_has_its_place_in_every_folder(system: str, places: tuple[str, ...]) -> None:
    named = [place.format(system) for place in places]
    assert any((ROOT / place).exists() for place in named), f"missing: {' or '.join(named)}"


@pytest.mark.parametrize("system", systems())
def test_a_system_imports_no_other_system(system: str) -> None:
    others = {f"streams.{other}" for other in systems() if other != system}
    folder = ROOT / "streams" / system
    files = list(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    met = {name for file in files for name in imported(file)}
    assert not {name for name in met if ".".join(name.split(".")[:2]) in others}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_functions_fit_a_screen() -> None:
    long = [
        f"{name_of(file)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for file in MODULES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long


def test_modules_are_small() -> None:
    lines = {name_of(f): len(f.read_text().splitlines()) for f in MODULES if f.name != "events.py"}
    assert not {name: count for name, count in lines.items() if count > MODULE_LINES_MAX}


def test_nothing_is_left_unfinished() -> None:
    left = [
        f"{name_of(file)}:{number}: {line.strip()[:80]}"
        for file in FILES
        if file.suffix not in BINARY and file.name not in ("requirements.lock", "LICENSE")
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not left


def test_every_schema_has_an_example() -> None:
    without = []
    for file in FILES:
        if file.suffix == ".avsc":
            example = file.parent / "examples" / f"{file.stem}.json"
            if not example.exists() or not json.loads(example.read_text()):
                without.append(name_of(file))
    assert not without


def test_no_module_has_a_name_that_says_nothing() -> None:
    banned = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    assert not [name_of(f) for f in MODULES if f.stem in banned]


def test_only_the_agreed_folders_hold_code() -> None:
    tops = {f.relative_to(ROOT).parts[0] for f in MODULES}
    assert tops <= {*PACKAGES, "tests"}
