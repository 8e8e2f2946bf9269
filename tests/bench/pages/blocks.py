"""What a page is made of, and how it looks in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = {
    "title": "",
    "events_per_s": "events/s",
    "steady_events_per_s": "steady events/s",
    "cpu_s_per_million": "CPU s/M",
    "process_cpu_s_per_million": "process CPU s/M",
    "broker_cpu_s_per_million": "broker CPU s/M",
    "rss_peak_mib": "peak MiB",
    "start_s": "start, s",
    "idle_core_percent": "idle, % of a core",
}
"""Headings of known figures; others are their names, written for people."""
THOUSAND = 1_000


@dataclass(frozen=True)
class Heading:
    """A heading below the benchmark's own."""

    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph, or several."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Single figures."""

    facts: Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Table:
    """Rows under named columns; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Plot:
    """A picture beside the page; `says` is what it shows, for those who do not see it."""

    name: str
    svg: str
    says: str


Block = Heading | Text | Facts | Table | Plot


def markdown(block: Block, folder: str) -> str:
    """A block as Markdown; pictures are in `folder`."""
    match block:
        case Heading(text):
            return f"### {text}"
        case Text(text):
            return text
        case Facts(facts):
            return "\n".join(f"- {said(name)}: {cell(value)}" for name, value in facts)
        case Table(columns, rows):
            lines = ["| " + " | ".join(said(name) for name in columns) + " |"]
            lines.append("|---" * len(columns[:1]) + "|---:" * len(columns[1:]) + "|")
            lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
            return "\n".join(lines)
        case Plot(name, _, says):
            return f"![{says}]({folder}/{name}.svg)"


def said(name: str) -> str:
    """A figure's name for people: `rows_per_s` → rows/s."""
    return COLUMNS.get(name, name.replace("_per_", "/").replace("_", " "))


def cell(value: Any) -> str:
    """A value for people; digits that mean nothing are left out."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float() if abs(value) >= THOUSAND:
            return f"{value:,.0f}"
        case float():
            return f"{value:,.3g}" if abs(value) < 1 else f"{value:,.2f}"
        case list() | tuple():
            return ", ".join(map(cell, value))
        case _:
            return str(value).replace("|", "\\|").replace("\n", " ")
