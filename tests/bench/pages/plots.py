"""Plots as SVG: the same bytes for the same figures, text as text, colours that everybody sees."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

OURS, OTHERS, LIGHT = "#0072b2", "#7f7f7f", "#56b4e9"
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7f7f7f", "#e69f00", "#56b4e9")
"""Okabe and Ito's palette, told apart by all kinds of colour vision; dashes differ too."""
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)))
STYLE = {
    "svg.hashsalt": "headrace",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "savefig.facecolor": "white",
}
WIDTH_IN = 7.5


def bars(
    rows: Mapping[str, tuple[float, float | None]], unit: str, ours: Sequence[str] = ()
) -> str:
    """Horizontal bars by title: a figure and, lighter above it, its steady one where there is."""
    steady = any(second is not None for _, second in rows.values())
    with _figure(0.6 + 0.42 * len(rows)) as (figure, axes):
        most = max(value for pair in rows.values() for value in pair if value is not None)
        for at, (title, (first, second)) in enumerate(reversed(list(rows.items()))):
            colour = OURS if title in ours else OTHERS
            axes.barh(at, first, 0.38 if steady else 0.62, color=colour)
            label = number(first)
            if second is not None:
                axes.barh(at + 0.38, second, 0.3, color=colour, alpha=0.5)
                label += f" (steady {number(second)})"
            axes.text(max(first, second or 0) + most * 0.01, at, label, va="center")
        axes.set_yticks(range(len(rows)), list(reversed(list(rows))))
        axes.set_xlim(0, most * 1.35)
        axes.set_xlabel(unit)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axes.grid(visible=False, axis="y")
        return _svg(figure)


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
    marks: bool = True,
    ticks: Mapping[float, str] | None = None,
) -> str:
    """One line a name."""
    with _figure(3.4) as (figure, axes):
        for n, (name, (xs, ys)) in enumerate(series.items()):
            look = {"color": LINES[n % len(LINES)], "linestyle": DASHES[n % len(DASHES)]}
            axes.plot(xs, ys, marker="o" if marks else None, markersize=4, label=name, **look)
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        if ticks is None:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        else:
            axes.set_xticks(list(ticks), list(ticks.values()))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if len(series) > 1:
            axes.legend(frameon=False)
        return _svg(figure)


def number(value: float) -> str:
    """Short: 1.25 M, 340 k, 0.42."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


@contextmanager
def _figure(height_in: float) -> Iterator[tuple[Figure, Axes]]:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        yield figure, figure.add_subplot()


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    metadata: dict[str, Any] = {"Date": None, "Creator": None}
    figure.savefig(out, format="svg", metadata=metadata)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
