"""One page per system, generated from the code: events, agents, tables, routes, places."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from api.app import document
from schemas.catalog import topics_of
from streams import catalog
from streams.runtime.projection import Projection, System
from streams.runtime.sink import Ranking, Shape, Timeline
from streams.runtime.topic import Topic

ROOT = Path(__file__).resolve().parents[2]
PAGES = Path(__file__).resolve().parents[1] / "docs"
PLACES = (
    ("what happened", "schemas/{}/"),
    ("what we derive", "streams/{}.py"),
    ("what is stored where", "sinks/{}.py"),
    ("what can be asked and written", "api/routes/{}.py"),
    ("what is shown by tests", "tests/{}/"),
    ("what operators see", "infra/grafana/dashboards/{}.json"),
)


def page(name: str) -> str:
    """The page of a system, in Markdown. Raises `UnknownSystem`."""
    system = catalog.load(name)
    lines = [f"# {system.title}", "", _about(system), "", "## Where it lives", ""]
    lines += ["| question | place |", "|---|---|"]
    lines += [f"| {question} | `{located(place, name)}` |" for question, place in PLACES]
    lines += ["", "## Events", ""]
    for topic in topics_of(name):
        lines += _topic(topic)
    lines += ["## Read models", ""]
    for projection in system.projections:
        lines += _projection(projection)
    lines += ["## Routes", "", "| route | what it does |", "|---|---|", *_routes(name)]
    return "\n".join(lines).rstrip() + "\n"


def write(names: tuple[str, ...] = catalog.SYSTEMS) -> list[Path]:
    """Write the pages that have changed; returns them."""
    changed = []
    for name in names:
        file, text = PAGES / f"{name}.md", page(name)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            changed.append(file)
    return changed


def located(place: str, name: str) -> str:
    """Where a system has its part: a module, or a package of that name."""
    path = place.format(name)
    package = path.removesuffix(".py") + "/"
    return package if not (ROOT / path).exists() and (ROOT / package).is_dir() else path


def _about(system: System) -> str:
    text = inspect.getdoc(import_module(f"streams.{system.name}")) or ""
    return text.strip()


def _topic(topic: Topic) -> list[str]:
    lateness_s = topic.allowed_lateness_ms // 1000
    late = (
        "no event time"
        if topic.event_time is None
        else f"event time `{topic.event_time}`, rows up to {lateness_s:,} s late correct results, "
        f"later ones go to `{topic.late}`"
    )
    lines = [
        f"**`{topic.name}`**: {topic.doc} Key `{topic.key}`, {topic.partitions} partitions, "
        f"{late}; unreadable ones go to `{topic.dead_letters}`.",
        "",
    ]
    for record in topic.records:
        lines += [f"`{record.name}`: {record.schema['doc']}", "", "| field | type | meaning |"]
        lines += ["|---|---|---|"]
        lines += [
            f"| `{field['name']}` | {_type(field['type'])} | {field['doc']} |"
            for field in record.schema["fields"]
        ]
        lines.append("")
    return lines


def _type(avro: Any) -> str:
    if isinstance(avro, list):
        return " or ".join(_type(one) for one in avro)
    if isinstance(avro, dict):
        if avro["type"] == "enum":
            return ", ".join(avro["symbols"])
        return str(avro.get("logicalType", avro["type"]))
    return str(avro)


def _projection(projection: Projection) -> list[str]:
    lines = [
        f"**`{projection.name}`** ({projection.store}): "
        f"{inspect.getdoc(type(projection.fold)) or ''}",
        "",
        "| table | key | values |",
        "|---|---|---|",
    ]
    for table in projection.model.tables:
        key, values = _columns(table)
        lines.append(f"| `{table.name}` | {key} | {values} |")
    return [*lines, ""]


def _columns(table: Shape) -> tuple[str, str]:
    if isinstance(table, Ranking):
        return ", ".join((*table.board, table.member)), "score, reached_ms (ordered)"
    if isinstance(table, Timeline):
        return ", ".join(table.key), f"time_ms (the newest {table.entries_max:,} of each feed)"
    return ", ".join(table.key), ", ".join(table.values)


def _routes(name: str) -> Iterator[str]:
    for path, methods in document()["paths"].items():
        for method, about in methods.items():
            if isinstance(about, dict) and name in about.get("tags", []):
                yield f"| `{method.upper()} {path}` | {about.get('summary', '')} |"
