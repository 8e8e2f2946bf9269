"""Any result as blocks: rows of figures become tables, rates and percentiles become plots.

A benchmark needs no renderer of its own as long as its result consists of figures, rows of
figures (a list of objects, or objects by name) and groups of such rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.bench.pages import plots
from tests.bench.pages.blocks import Block, Facts, Heading, Plot, Table, said

META = ("benchmark", "measured", "machine", "notes", "settings", "runs")
LIST_MAX = 12
OURS = ("headrace", "lane")
Row = dict[str, Any]


def blocks(name: str, result: Mapping[str, Any]) -> Iterator[Block]:
    """Everything of a result but what `META` names."""
    yield from _group(name, {key: value for key, value in result.items() if key not in META})


def _group(name: str, group: Mapping[str, Any]) -> Iterator[Block]:
    facts = [(key, value) for key, value in group.items() if _is_fact(value)]
    if versions := group.get("versions"):
        facts.append(("versions", ", ".join(f"{part} {v}" for part, v in versions.items())))
    if facts:
        yield Facts(facts)
    ratios = {key: one for key, one in group.items() if _is_ratio(one)}
    spread = {key: one for key, one in group.items() if _is_spread(one) and not rows(one)}
    if spread:
        yield from figures(f"{name}-spread", [{"title": said(k), **v} for k, v in spread.items()])
    for key, value in group.items():
        if _is_fact(value) or key in (*META, *spread, *ratios, "versions"):
            continue
        found = rows(value)
        if found:
            yield from _titled(group, key)
            yield from figures(f"{name}-{key}", found)
        elif isinstance(value, Mapping):
            yield Heading(said(key))
            yield from _group(f"{name}-{key}", value)
    if ratios:
        shown = [(said(k), one["median"], one.get("by_turn")) for k, one in ratios.items()]
        yield Table(("times as many events/s", "median", "by turn"), shown)


def _titled(group: Mapping[str, Any], key: str) -> Iterator[Block]:
    if sum(bool(rows(value)) for value in group.values()) > 1:
        yield Heading(said(key))


def rows(value: Any) -> list[Row]:
    """The rows of a list of objects, or of objects by name; none if it is neither."""
    if isinstance(value, list):
        return [_flat(one) for one in value] if all(isinstance(v, Mapping) for v in value) else []
    if isinstance(value, Mapping) and value:
        if not all(isinstance(one, Mapping) and _is_row(one) for one in value.values()):
            return []
        return [{"title": title, **_flat(one)} for title, one in value.items()]
    return []


def figures(name: str, found: list[Row]) -> Iterator[Block]:
    """A table of rows and a plot of what can be plotted."""
    keys = list(dict.fromkeys(key for row in found for key in row))
    lead = "title" if "title" in keys else keys[0]
    columns = [lead, *(key for key in keys if key != lead)]
    columns = [key for key in columns if any(row.get(key) is not None for row in found)]
    yield Table(columns, [[row.get(key) for key in columns] for row in found])
    yield from _plot(name, lead, found, columns)


def _plot(name: str, lead: str, found: list[Row], columns: list[str]) -> Iterator[Block]:
    rate = next((key for key in columns if key.endswith("_per_s")), None)
    levels = {key: float(key[1:]) for key in columns if _percentile(key)}
    if len(levels) > 1:
        ticks = {float(n): f"p{level:g}" for n, level in enumerate(levels.values())}
        series = {
            str(row[lead]): (list(ticks), [row[key] for key in levels])
            for row in found
            if all(row.get(key) is not None for key in levels)
        }
        if series:
            svg = plots.lines(series, x="", y="ms", log_y=True, ticks=ticks)
            yield Plot(name, svg, f"Percentiles in milliseconds of {', '.join(series)}.")
    elif rate is not None and len(found) > 1:
        pairs = {
            str(row[lead]): (row[rate], row.get(f"steady_{rate}"))
            for row in found
            if row.get(rate) is not None
        }
        ours = [title for title in pairs if any(word in title.lower() for word in OURS)]
        says = ", ".join(f"{title} {plots.number(pair[0])}" for title, pair in pairs.items())
        yield Plot(name, plots.bars(pairs, said(rate), ours), f"{said(rate)}: {says}.")


def _percentile(key: str) -> bool:
    return key.startswith("p") and key[1:].replace(".", "", 1).isdigit()


def _flat(row: Mapping[str, Any]) -> Row:
    """Figures of a row; percentiles inside it stand for themselves if there is one kind."""
    flat: Row = {}
    nested = {key: one for key, one in row.items() if isinstance(one, Mapping) and key not in META}
    latencies = [key for key, one in nested.items() if _is_spread(one)]
    told = [key for key in latencies if any(ms is not None for ms in nested[key].values())]
    shown = "visible_ms" if "visible_ms" in told else next(iter(told), None)
    for key, value in row.items():
        if key in META:
            continue
        if key == shown:
            flat |= {level: ms for level, ms in value.items() if _is_fact(ms)}
        elif key in nested:
            if key not in latencies:
                flat |= {f"{key}_{one}": v for one, v in value.items() if _is_fact(v)}
        elif _is_fact(value):
            flat[key] = value
    return flat


def _is_spread(value: Any) -> bool:
    """Percentiles by name."""
    return isinstance(value, Mapping) and any(map(_percentile, value))


def _is_ratio(value: Any) -> bool:
    """A figure as median and by turn."""
    return isinstance(value, Mapping) and "median" in value and _is_fact(value["median"])


def _is_row(value: Mapping[str, Any]) -> bool:
    """Figures, and at most figures below them."""
    return any(_is_fact(one) for key, one in value.items() if key not in META) and not any(
        rows(one) for key, one in value.items() if key not in META
    )


def _is_fact(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= LIST_MAX and all(isinstance(v, int | float | str) for v in value)
    return value is None or isinstance(value, bool | int | float | str)
