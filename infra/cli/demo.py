"""`headrace demo`: public data through the whole product, every count checked."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from infra.demo import (
    chat,
    feed,
    ids,
    limiter,
    links,
    notifications,
    pastes,
    processes,
    typeahead,
    webhooks,
)
from infra.demo.compare import Check
from infra.demo.money import TRANSFERS, Money
from infra.demo.scenarios import SCENARIOS
from infra.demo.steps import Demo
from infra.local.home import Home
from streams.runtime.settings import Settings, home

app = typer.Typer(add_completion=False)
CPUS_MAX = 2
PLAIN_COLUMNS = 120
"""Width where the output is no terminal, such as a log of continuous integration."""


@app.command()
def demo(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SYSTEM]…", help="All that have a demo if left out."),
    ] = None,
    scale: Annotated[
        int, typer.Option(min=1, max=100, help="Send every event so many times, by other users.")
    ] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Delete nothing: stop if the topics hold anything.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Delete what the topics hold, whoever wrote it.")
    ] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Leave the API and the workers running until Ctrl-C.")
    ] = False,
) -> None:
    """Fetch public data, send it through the log, and prove that every count is right.

    Starts what it needs. Two times 5 % of the clicks are repeated; all tables are compared with a
    recount of the source files that shares no code with the product, the read API is asked, and
    every read model is rebuilt from the log and compared. Exit code 1 if anything differs.

    The demo begins with empty topics: it deletes what an earlier demo left in them. Anything
    else it leaves alone and says so.

    Examples:
      headrace demo

      headrace demo ads --scale 20

      headrace demo payments

      headrace demo --stay

    """
    console = Console(width=None if sys.stdout.isatty() else PLAIN_COLUMNS)
    with processes.alone(Home.default(), " ".join(("headrace demo", *(names or ())))):
        if names and STORIES.keys() & set(names):
            _story(names, scale, console)
        _public(names, scale, console, keep=keep, reset=reset, stay=stay)


def _public(
    names: list[str] | None, scale: int, console: Console, *, keep: bool, reset: bool, stay: bool
) -> NoReturn:
    """The demo of public events, over all systems that fold them at once."""
    began = time.monotonic()
    run = Demo(names or list(SCENARIOS), scale, console)
    run.data()
    settings = run.servers(keep=keep, reset=reset)
    workers = min(CPUS_MAX, os.cpu_count() or 1)
    port = processes.free_port(run.home, settings.api.port)
    url = f"http://{settings.api.host}:{port}"
    with ExitStack() as running:
        verb = ("worker", *run.names, "--processes", str(workers))
        running.enter_context(processes.running(run.home, processes.WORKER, *verb))
        running.enter_context(
            processes.running(run.home, processes.API, "api", "--port", str(port))
        )
        processes.wait_for_api(run.home, url)
        processes.wait_for_workers(run.home, workers)
        run.deliver(url)
        run.repeat()
        run.recount()
        run.ask(url)
        run.rebuild()
        _summary(run, console, time.monotonic() - began)
        _addresses(console, settings, url)
        if stay:
            _wait(console)
    raise typer.Exit(0 if all(check.ok for check in run.checks) else 1)


def _story(names: list[str], scale: int, console: Console) -> NoReturn:
    """A demo of its own: driven by commands through the API, not by public events."""
    if len(names) > 1:
        own = " and ".join(sorted(STORIES))
        raise typer.BadParameter(f"{own} have demos of their own: give one name")
    began = time.monotonic()
    checks, what = STORIES[names[0]](scale, console)
    _table(checks, console)
    _verdict(checks, console, what, time.monotonic() - began)
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


def _payments(scale: int, console: Console) -> tuple[list[Check], str]:
    run = Money(console, transfers=TRANSFERS * scale)
    run.run()
    return run.checks, f"{run.transfers:,} transfers"


def _by(
    run: Callable[[Console, Home], list[Check]], what: str
) -> Callable[[int, Console], tuple[list[Check], str]]:
    """A demo of one size; `what` it is run on."""
    return lambda _scale, console: (run(console, Home.default()), what)


STORIES: dict[str, Callable[[int, Console], tuple[list[Check], str]]] = {
    "chat": _by(chat.run, "four mailing lists as groups"),
    "feed": _by(feed.run, "two days of departures"),
    "ids": _by(ids.run, f"{ids.IDS:,} ids"),
    "links": _by(links.run, "the clicks of a web server's log"),
    "limiter": _by(limiter.run, "a web server's log and a crowd"),
    "notifications": _by(notifications.run, "a day of delayed flights"),
    "pastes": _by(pastes.run, "source files in many languages"),
    "payments": _payments,
    "typeahead": _by(typeahead.run, f"{typeahead.SEARCHES:,} searches"),
    "webhooks": _by(webhooks.run, "example payloads of GitHub's webhooks"),
}
"""Demos of systems that decide: what was compared, and what was done. One at a time, by name."""


def _summary(run: Demo, console: Console, elapsed_s: float) -> None:
    """One line per table, and the verdict."""
    _table(run.checks, console)
    _verdict(run.checks, console, f"{run.flow.sent.total():,} events", elapsed_s)


def _table(checks: list[Check], console: Console) -> None:
    console.rule("[bold]Summary[/]", align="left")
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name, justify in (("what", "left"), ("compared", "right"), ("different", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    table.add_column("")
    for where in dict.fromkeys(check.where for check in checks):
        found = [check for check in checks if check.where == where]
        bad = sum(not check.ok for check in found)
        verdict = "[bold red]DIFFERENT[/]" if bad else "[green]OK[/]"
        table.add_row(where, str(len(found)), str(bad), verdict)
    console.print(table)
    for check in (check for check in checks if not check.ok):
        console.print(f"  {check}", highlight=False, markup=False)


def _verdict(checks: list[Check], console: Console, what: str, elapsed_s: float) -> None:
    bad = sum(not check.ok for check in checks)
    verdict = f"[bold red]{bad} of them DIFFERENT[/]" if bad else "[bold green]all equal[/]"
    console.print(
        f"{what}, {len(checks)} comparisons: {verdict}, in {elapsed_s:.0f} s",
        highlight=False,
    )


def _addresses(console: Console, settings: Settings, url: str) -> None:
    """Where to look further."""
    lines = (
        ("API description", f"{url}/openapi.json (while it runs: --stay, or headrace api)"),
        ("API metrics", f"{url}/metrics"),
        ("Kafka", settings.kafka.bootstrap_servers),
        ("schema registry", settings.registry.url),
        ("logs", f"{home() / 'log'}/demo-worker.log, demo-api.log"),
        ("more", "headrace status · headrace lag · headrace topics list · headrace down"),
    )
    for name, text in lines:
        console.print(f"{name:<16} {text}", highlight=False, soft_wrap=True)


def _wait(console: Console) -> None:
    console.print("The API and the workers stay until Ctrl-C (headrace top shows them).")
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        console.print("stopping")
