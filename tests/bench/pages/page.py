"""The page of all benchmarks, from their result files and the docstrings of their modules."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.local.home import CHECKOUT
from tests.bench.pages import generic, own
from tests.bench.pages.blocks import Block, Plot, Text, cell, markdown
from tests.bench.report import RESULTS

DOCS = CHECKOUT / "infra" / "docs"
NAME = "benchmarks"
ORDER = (
    *("lane", "ysb", "nexmark", "rebuild", "sinks", "decide", "verdicts", "ingest", "api"),
    *("latency", "paced", "notifications", "webhooks", "scale", "soak", "footprint"),
)
"""How the page is ordered; benchmarks that are not named here follow by name."""
HEAD = """# Benchmarks

Measured by `./dev bench NAME` (one) or `./dev bench all` (every one, then this page), rendered
from `tests/bench/results/*.json` by `./dev bench report`. Each section gives the method, the
figures and, where engines are compared, where another one wins and why. *CPU s/M* is processor
seconds per million events. Figures of different sections may come from different days; machine,
versions and date stand below each. Two cores run everything at once here, generator, broker,
store and engine, and the host's speed drifts by a fifth between minutes: ratios within one run
count, not figures of two.
"""


def rendered(results: Path = RESULTS) -> dict[str, str]:
    """Text by file name, relative to `infra/docs`: the page and its pictures."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted(results.glob("*.json"))}
    files, parts = {}, [HEAD.strip()]
    names = sorted(found, key=lambda name: (ORDER.index(name) if name in ORDER else 99, name))
    parts.append("\n".join(f"- [{name}](#{name})" for name in names))
    for name in names:
        parts.append(f"## {name}")
        for block in section(name, found[name]):
            if isinstance(block, Plot):
                files[f"{NAME}/{block.name}.svg"] = block.svg
            parts.append(markdown(block, NAME))
    files[f"{NAME}.md"] = "\n\n".join(parts) + "\n"
    return files


def section(name: str, result: Mapping[str, Any]) -> Iterator[Block]:
    """Method, figures, what they say, where they were measured."""
    if text := method(name):
        yield Text(text)
    yield from own.RENDER.get(name, generic.blocks)(name, result)
    if notes := result.get("notes"):
        yield Text(_notes(notes))
    if settings := _settings(result):
        shown = json.dumps(settings, indent=2)
        summary = "<details><summary>Settings of each contender</summary>"
        yield Text(f"{summary}\n\n```json\n{shown}\n```\n\n</details>")
    yield Text(_measured(result))


def _settings(result: Mapping[str, Any]) -> Any:
    """The settings that a result publishes, as a whole or by contender."""
    contenders: Mapping[str, Mapping[str, Any]] = result.get("contenders", {})
    named = {one.get("title", name): one.get("settings") for name, one in contenders.items()}
    return result.get("settings") or {title: one for title, one in named.items() if one}


def method(name: str) -> str:
    """The docstring of the benchmark's module, without its name; empty if there is none."""
    folder = CHECKOUT / "tests" / "bench"
    for file in (folder / f"{name}.py", folder / name / "__init__.py"):
        if file.is_file():
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            return _begun(text.removeprefix(f"`bench {name}`:").strip())
    return ""


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _notes(notes: Any) -> str:
    match notes:
        case str():
            return notes
        case Mapping():
            return "\n".join(f"- **{title}**: {text}" for title, text in notes.items())
        case _:
            return "\n".join(f"- {text}" for text in notes)


def _measured(result: Mapping[str, Any]) -> str:
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"<sub>{result['measured'][:10]}, {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Python {machine['python']}, {versions}; "
        f"load {cell(machine['load'])}</sub>"
    )


def write(docs: Path = DOCS) -> list[Path]:
    """Write the page and its pictures, remove pictures of before; returns what was written."""
    files = rendered()
    folder = docs / NAME
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        if f"{NAME}/{old.name}" not in files:
            old.unlink()
    for name, text in files.items():
        (docs / name).write_text(text)
    return [docs / name for name in files]
