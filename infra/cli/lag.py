"""`headrace lag`: how far every agent is behind its topics."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from infra.lag import Lag, State, total
from infra.lag.measure import committed, measure, shown_by_workers
from infra.lag.stored import agents, opener, stored
from infra.prometheus.scrape import BadTargets, discover, scrape
from streams.runtime.settings import Settings, home

app = typer.Typer(name="lag", add_completion=False)

EXIT_ABOVE, EXIT_UNKNOWN, EXIT_UNREACHABLE = 1, 2, 5


@app.command()
def lag(
    *,
    agent: Annotated[str | None, typer.Option(help="Only this agent (or consumer group).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between refreshes.")] = 2.0,
    fail_above: Annotated[
        int | None,
        typer.Option(min=0, help="Exit with 1 when an agent is more records behind than this."),
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(help="Folder of Prometheus file_sd files.", show_default=".headrace/targets"),
    ] = None,
) -> None:
    """Position, log end and lag of each agent and partition, in records and in seconds.

    The position is read from the store, else from the running worker, else from what the agent
    committed in Kafka. The column `source` says which.

    Exit codes: 0 fine, 1 above --fail-above, 2 unknown agent, 5 Kafka does not answer.

    Examples: `headrace lag`, `headrace lag --agent ads-windows --watch`,
    `headrace lag --json --fail-above 10000`
    """
    settings, folder = Settings.read(), targets or home() / "targets"
    names = [agent] if agent else agents()
    try:
        if watch:
            _watch(settings, names, folder, interval)
        lags, silent = look(settings, names, folder)
    except KafkaException as error:
        address = settings.kafka.bootstrap_servers
        typer.echo(f"Kafka at {address}: {error.args[0].str()}", err=True)
        raise typer.Exit(EXIT_UNREACHABLE) from error
    except BadTargets as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(EXIT_UNKNOWN) from error
    for name, reason in silent.items():
        typer.echo(f"{name}: its store does not answer: {reason}", err=True)
    if agent and not lags:
        typer.echo(f"no position of {agent} is known: it never ran here", err=True)
        raise typer.Exit(EXIT_UNKNOWN)
    if as_json:
        typer.echo(json.dumps([as_dict(one) for one in lags], indent=2))
    elif not lags:
        typer.echo("no agent has a position yet: start one with headrace worker")
    else:
        Console().print(as_table(lags))
    above = [name for name, records in total(lags).items() if records > (fail_above or 0)]
    if fail_above is not None and above:
        typer.echo(f"more than {fail_above:,} records behind: {', '.join(above)}", err=True)
        raise typer.Exit(EXIT_ABOVE)


def look(
    settings: Settings, names: Sequence[str], folder: Path
) -> tuple[list[Lag], Mapping[str, str]]:
    """Measure once; also why stores were silent, by agent. The most exact source wins."""
    from_stores = stored(names, opener(settings))
    shown = shown_by_workers(scrape(discover(folder)))
    known = {
        **committed(settings.kafka, names),
        **{place: at for place, at in shown.items() if place.agent in names},
        **from_stores.positions,
    }
    return measure(settings.kafka, known), from_stores.silent


def as_dict(one: Lag) -> dict[str, Any]:
    """For scripts; the names are stable."""
    return {
        "agent": one.place.agent,
        "topic": one.place.topic,
        "partition": one.place.partition,
        "position": one.position,
        "log_end": one.log_end,
        "lag_records": one.records,
        "lag_seconds": one.seconds,
        "source": one.source.value,
        "state": one.state.value,
    }


def as_table(lags: list[Lag]) -> Table:
    """For people: one line a partition, a rule between agents."""
    table = Table(box=SIMPLE_HEAD, collapse_padding=True)
    for name in ("agent", "topic"):
        table.add_column(name, overflow="fold")
    for name in ("part", "position", "log end", "behind", "age s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("source")
    table.add_column("state")
    for index, one in enumerate(lags):
        last = index + 1 == len(lags) or lags[index + 1].place.agent != one.place.agent
        table.add_row(
            one.place.agent,
            one.place.topic,
            str(one.place.partition),
            f"{one.position:,}",
            f"{one.log_end:,}",
            f"{one.records:,}",
            "?" if one.seconds is None else f"{one.seconds:,.1f}",
            one.source.value,
            one.state.value,
            end_section=last,
            style=None if one.state is State.OK else "red",
        )
    return table


def _watch(settings: Settings, names: Sequence[str], folder: Path, interval_s: float) -> None:
    """Refresh until Ctrl-C, then go on to the last answer."""
    with Live(auto_refresh=False) as live:
        try:
            while True:
                lags, _ = look(settings, names, folder)
                live.update(as_table(lags), refresh=True)
                time.sleep(interval_s)
        except KeyboardInterrupt:
            return
