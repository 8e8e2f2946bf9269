"""Results that are more than rows: growth, and memory over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.bench.pages import generic, plots
from tests.bench.pages.blocks import Block, Facts, Heading, Plot

Render = Callable[[str, Mapping[str, Any]], Iterator[Block]]


def scale(name: str, result: Mapping[str, Any]) -> Iterator[Block]:
    """Workers, then the cost of an event by the size of the state."""
    yield Facts([(key, result[key]) for key in ("records", "partitions", "totals")])
    yield Heading("Workers")
    workers = [{"title": f"{one['workers']} workers", **one} for one in result["workers"]]
    yield from generic.figures(f"{name}-workers", generic.rows(workers))
    yield Heading("Keys")
    for kind, states in result["states"].items():
        yield from generic.figures(
            f"{name}-{kind}", [{"title": f"{kind}, {one['keys']:,}", **one} for one in states]
        )
    series = {
        kind: ([one["keys"] for one in states], [one["cpu_s_per_million"] for one in states])
        for kind, states in result["states"].items()
    }
    svg = plots.lines(series, x="keys", y="CPU s per million events", log_x=True)
    yield Plot(f"{name}-keys", svg, "CPU seconds per million events by the number of keys held.")


def soak(name: str, result: Mapping[str, Any]) -> Iterator[Block]:
    """The slope with its interval, and the memory over time."""
    low, high = result["low"], result["high"]
    facts = [(key, result[key]) for key in ("minutes", "events_per_s", "events", "cores")]
    facts.append(("slope, MiB/h", result["slope_mib_per_h"]))
    facts.append(("95 % interval of the slope, MiB/h", [low, high]))
    facts += [(f"{key} MiB", value) for key, value in result["rss_mib"].items()]
    yield Facts(facts)
    minutes = [second / 60 for second in result["seconds"]]
    series = {"RSS": (minutes, result["rss_by_second_mib"])}
    svg = plots.lines(series, x="minutes", y="MiB", marks=False)
    yield Plot(name, svg, "Resident memory of the worker over the minutes of the run.")


RENDER: dict[str, Render] = {"scale": scale, "soak": soak}
"""Benchmarks with a renderer of their own; all others are `generic.blocks`."""
