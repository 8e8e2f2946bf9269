"""`headrace top`: what all workers do right now, read from their own `/metrics`."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infra.prometheus.scrape import BadTargets, Frame, discover, scrape
from streams.runtime.settings import home

app = typer.Typer(name="top", add_completion=False)

ERRORS = {
    "dead letters": "headrace_dead_letters_total",
    "fence refusals": "headrace_fence_refusals_total",
    "sink retries": "headrace_sink_retries_total",
    "restarts": "headrace_worker_restarts_total",
}


@dataclass(frozen=True)
class AgentRow:
    """One agent over all processes. Rates are per second; `errors` count since process start."""

    agent: str
    system: str
    rows_rate: float
    unapplied_rate: float
    lag: int
    lag_s: float
    watermark_delay_s: float
    end_to_end_p99_s: float
    partitions: int
    errors: dict[str, int]


@dataclass(frozen=True)
class RouteRow:
    """One API route over all processes."""

    route: str
    rate: float
    p99_s: float
    server_error_rate: float


def agents(before: Frame, after: Frame) -> list[AgentRow]:
    """What each agent did between two frames, by name. Unknown quantities are NaN."""
    elapsed_s = after.taken_s - before.taken_s
    systems = {
        labels["agent"]: labels["system"] for labels, _ in after.of("headrace_batches_total")
    }
    rows = list(after.increase(before, "headrace_rows_total"))
    latencies = list(after.increase(before, "headrace_end_to_end_seconds_bucket"))
    return [
        AgentRow(
            agent=agent,
            system=systems[agent],
            rows_rate=sum(n for at, n in rows if at["agent"] == agent) / elapsed_s,
            unapplied_rate=sum(
                n for at, n in rows if at["agent"] == agent and at["fate"] != "applied"
            )
            / elapsed_s,
            lag=_lag(after, agent),
            lag_s=_worst(after, "headrace_lag_seconds", agent),
            watermark_delay_s=_worst(after, "headrace_watermark_delay_seconds", agent),
            end_to_end_p99_s=quantile(
                0.99, ((float(at["le"]), n) for at, n in latencies if at["agent"] == agent)
            ),
            partitions=int(_sum(after, "headrace_assigned_partitions", agent)),
            errors={key: int(_sum(after, name, agent)) for key, name in ERRORS.items()},
        )
        for agent in sorted(systems)
    ]


def routes(before: Frame, after: Frame) -> list[RouteRow]:
    """What each API route answered between two frames, busiest first."""
    elapsed_s = after.taken_s - before.taken_s
    name = "http_server_request_duration_seconds"
    counts: dict[str, float] = defaultdict(float)
    failed: dict[str, float] = defaultdict(float)
    for at, n in after.increase(before, f"{name}_count"):
        counts[at["route"]] += n
        if at["status"].startswith("5"):
            failed[at["route"]] += n
    buckets: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for at, n in after.increase(before, f"{name}_bucket"):
        buckets[at["route"]].append((float(at["le"]), n))
    return [
        RouteRow(route, n / elapsed_s, quantile(0.99, buckets[route]), failed[route] / elapsed_s)
        for route, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def quantile(q: float, buckets: Iterable[tuple[float, float]]) -> float:
    """A quantile as Prometheus computes it, from cumulative (upper edge, count) pairs of one or
    more histograms with the same edges; NaN without observations.
    """
    merged: dict[float, float] = defaultdict(float)
    for edge, count in buckets:
        merged[edge] += count
    edges = sorted(merged)
    if not edges or not merged[edges[-1]]:
        return math.nan
    rank = q * merged[edges[-1]]
    low, below = 0.0, 0.0
    for edge in edges:
        count = merged[edge]
        if count >= rank:
            return (
                low if math.isinf(edge) else low + (edge - low) * (rank - below) / (count - below)
            )
        low, below = edge, count
    return math.nan


def screen(before: Frame, after: Frame) -> RenderableType:
    """Both frames as tables for a terminal."""
    found, answered = agents(before, after), routes(before, after)
    parts: list[RenderableType] = [_agent_table(found)]
    if answered:
        parts.append(_route_table(answered))
    parts += [Text(line, style="red") for line in map(_errors, found) if line]
    parts += [Text(f"no answer from {address}", style="bold red") for address in after.down]
    return Group(*parts)


@app.command()
def top(
    targets: Annotated[
        Path | None,
        typer.Option(help="Folder of Prometheus file_sd files.", show_default=".headrace/targets"),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
) -> None:
    """Rates, lag, watermark delay, latency and errors of every agent and API route.

    Rates and latencies are those between the last two looks; errors count since process start.

    Examples: `headrace top`, `headrace top --once`, `headrace top --targets /etc/headrace/targets`
    """
    folder = targets or home() / "targets"
    console = Console()
    try:
        if not discover(folder):
            typer.echo(
                f"no worker runs: {folder} names no target (start one: headrace up)", err=True
            )
            raise typer.Exit(1)
        before = scrape(discover(folder))
        with Live(
            console=console, auto_refresh=False, screen=not once and console.is_terminal
        ) as live:
            while True:
                time.sleep(interval)
                after = scrape(discover(folder))
                live.update(screen(before, after), refresh=True)
                if once:
                    break
                before = after
    except BadTargets as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _of(frame: Frame, name: str, agent: str) -> list[float]:
    return [value for labels, value in frame.of(name) if labels["agent"] == agent]


def _sum(frame: Frame, name: str, agent: str) -> float:
    return sum(_of(frame, name, agent))


def _worst(frame: Frame, name: str, agent: str) -> float:
    return max((v for v in _of(frame, name, agent) if not math.isnan(v)), default=math.nan)


def _lag(frame: Frame, agent: str) -> int:
    # Two processes show the same partition for a moment while it moves: take one of them.
    partitions: dict[tuple[str, str], float] = {}
    for labels, value in frame.of("kafka_consumergroup_lag"):
        if labels["consumergroup"] == agent:
            key = (labels["topic"], labels["partition"])
            partitions[key] = max(value, partitions.get(key, 0.0))
    return int(sum(partitions.values()))


def _agent_table(rows: list[AgentRow]) -> Table:
    table = Table(title="Agents", title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    table.add_column("agent", overflow="fold")
    for name in ("rows/s", "unapplied", "behind", "age", "watermark", "p99", "parts"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.agent,
            f"{row.rows_rate:,.0f}",
            f"{row.unapplied_rate:,.0f}",
            f"{row.lag:,}",
            _duration(row.lag_s),
            _duration(row.watermark_delay_s),
            _duration(row.end_to_end_p99_s),
            str(row.partitions),
        )
    return table


def _errors(row: AgentRow) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in row.errors.items() if count)
    return f"{row.agent}: {counts} since start" if counts else ""


def _route_table(rows: list[RouteRow]) -> Table:
    table = Table(title="API", title_justify="left", box=SIMPLE_HEAD, collapse_padding=True)
    table.add_column("route", overflow="fold")
    for name in ("requests/s", "p99"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("5xx/s", justify="right", style="red")
    for row in rows:
        failed = f"{row.server_error_rate:,.1f}" if row.server_error_rate else ""
        table.add_row(row.route, f"{row.rate:,.1f}", _duration(row.p99_s), failed)
    return table


def _duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    return f"{seconds:,.1f} s" if abs(seconds) >= 1 else f"{seconds * 1000:,.0f} ms"
