"""Begin a system: write a slice that is complete but for its rules, and list it everywhere.

The files of a slice are in `templates/`, under the paths that they get: `NAME` becomes the
system's name and `EVENT` its event's, `$name` and its like in the text likewise. What can be
generated from them (`events.py`, AsyncAPI, dashboards, the page in `infra/docs`) is made by
`derived`, in a process of its own, since this one has imported the lists as they were.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from infra.error import StackError
from infra.local.home import CHECKOUT
from infra.slice import lists
from infra.slice.names import Names
from schemas.generate import generate

TEMPLATES = Path(__file__).resolve().parent / "templates"
SUFFIX = ".template"
REMADE = ("schemas/asyncapi.json",)
"""What describes all systems, and so is made again."""


@dataclass(frozen=True)
class Slice:
    """What will be written, by path below the project's root: nothing is on disk yet.

    `new` and `changed` are texts; `derived` are the paths made from them afterwards.
    """

    names: Names
    new: Mapping[str, str]
    changed: Mapping[str, str]
    derived: tuple[str, ...]


def planned(names: Names, root: Path = CHECKOUT) -> Slice:
    """The slice of a system. Raises `BadName` where a name is taken, and `lists.NoPlace`."""
    systems = lists.strings(_read(root, "streams/catalog.py"), "SYSTEMS")
    changed = _listed(names, root, systems)
    raw = templates(names)
    sources = " ".join(text for path, text in raw.items() if path.endswith(".py"))
    names.check_free(root, systems, set(re.findall(r"\w+", sources)))
    return Slice(
        names=names,
        new={path: Template(text).substitute(names.words) for path, text in raw.items()},
        changed=changed,
        derived=(
            f"schemas/{names.system}/events.py",
            f"infra/grafana/dashboards/{names.system}.json",
            f"infra/docs/{names.system}.md",
        ),
    )


def write(made: Slice, root: Path = CHECKOUT) -> None:
    """Write the slice and everything derived from it; overwrites no file that is not a list.

    Raises `StackError` where the formatter is missing or the derived files cannot be made.
    """
    if importlib.util.find_spec("ruff") is None:
        raise StackError("the formatter is missing; ./dev new installs it (or: pip install ruff)")
    for path, text in made.new.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        with (root / path).open("x", encoding="utf-8") as file:
            file.write(text)
    for path, text in made.changed.items():
        (root / path).write_text(text, encoding="utf-8")
    generate([made.names.system], root / "schemas")
    sources = [path for path in (*made.new, *made.changed) if path.endswith(".py")]
    _run(root, "ruff", "check", "--quiet", "--select", "I", "--fix", *sources)
    _run(root, "ruff", "format", "--quiet", *sources)
    _run(root, "infra.slice.derived", made.names.system)


def templates(names: Names) -> dict[str, str]:
    """Template texts by the path that each gets."""
    return {
        path.relative_to(TEMPLATES)
        .as_posix()
        .removesuffix(SUFFIX)
        .replace("NAME", names.system)
        .replace("EVENT", names.record): path.read_text(encoding="utf-8")
        for path in sorted(TEMPLATES.rglob(f"*{SUFFIX}"))
    }


def _listed(names: Names, root: Path, systems: tuple[str, ...]) -> dict[str, str]:
    """The files that hold lists of systems, with this one in them."""
    system, reader = names.system, f"{names.words['pascal']}Reader"
    changed: dict[str, str] = {}

    def edit(path: str, change: Callable[[str], str]) -> None:
        try:
            changed[path] = change(changed.get(path) or _read(root, path))
        except lists.NoPlace as error:
            raise lists.NoPlace(f"{path}: {error}; nothing was written") from error

    def enter(path: str, variable: str, entry: str) -> None:
        edit(path, lambda text: lists.with_entry(text, variable, system, entry, systems))

    enter("streams/catalog.py", "SYSTEMS", f'"{system}"')
    enter("schemas/catalog.py", "SYSTEMS", f'"{system}"')
    app = "api/app.py"
    edit(app, lambda text: lists.with_import(text, "api.routes", system))
    edit(app, lambda text: lists.with_line(text, f"from sinks.{system} import {reader}"))
    enter(app, "ROUTERS", f"{system}.writes, {system}.router")
    opened = f"await opened.enter_async_context({reader}.open(settings))"
    enter(app, "open_readers", f'"{system}": {opened}')
    dashboards = "infra/grafana/generate.py"
    edit(dashboards, lambda text: lists.with_import(text, "infra.grafana.systems", system))
    enter(dashboards, "DASHBOARDS", f'"{system}": {system}.dashboard')
    return changed


def _read(root: Path, path: str) -> str:
    try:
        return (root / path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise lists.NoPlace(f"{path} is missing; run this in a checkout of Headrace") from None


def _run(root: Path, module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"{module} failed; the files are written.\n{done.stdout}{done.stderr}")
