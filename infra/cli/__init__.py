"""The command line `headrace`: one table of verbs, each imported only when it is used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from infra.error import StackError


class Verb(NamedTuple):
    """Where a verb lives and the one line that `headrace --help` shows for it."""

    module: str
    attribute: str
    help: str


VERBS: dict[str, dict[str, Verb]] = {
    "The local stack": {
        "up": Verb("stack", "up", "Start the servers that are asked for, and wait for them."),
        "down": Verb("stack", "down", "Stop our servers; data stays."),
        "status": Verb("stack", "status", "Show each server's address, pid, state and memory."),
        "logs": Verb("stack", "logs", "Show or follow what a server writes."),
        "clean": Verb("stack", "clean", "Stop everything and delete all local data."),
        "config": Verb("config", "app", "Show the settings in effect."),
    },
    "Running": {
        "demo": Verb("demo", "app", "Run the systems with live traffic and show them working."),
        "worker": Verb("worker", "app", "Run the agents of some systems."),
        "api": Verb("api", "app", "Serve the HTTP API."),
        "simulate": Verb("simulate", "app", "Run a provider of mail, SMS or push to try things."),
        "tail": Verb("tail", "app", "Follow log files and send their lines."),
        "alerts": Verb("alerts", "app", "Evaluate alert rules over the log, or over its past."),
        "limiter": Verb("limiter", "app", "Try a rate limit on the past; put lost counters back."),
        "pastes": Verb("pastes", "app", "Drop what the object store keeps and no paste needs."),
        "typeahead": Verb("typeahead", "app", "Build the snapshot that suggestions come from."),
        "token": Verb("token", "app", "Issue a token for the local API."),
    },
    "The log": {
        "topics": Verb("topics", "app", "List, create and check the topics of the catalogue."),
        "schemas": Verb("schemas", "app", "Generate, register and check the Avro schemas."),
        "produce": Verb("produce", "app", "Write example or generated events to a topic."),
        "dlq": Verb("dlq", "app", "Look at dead letters and send them again."),
        "rebuild": Verb("rebuild", "app", "Build a read model anew from the log, then switch."),
        "lag": Verb("lag", "app", "Show how far each consumer is behind, in events and seconds."),
        "top": Verb("top", "app", "Watch rates and lags live."),
    },
    "Developing": {
        "check": Verb("check", "app", "Lint, types, imports and layout."),
        "test": Verb("test", "app", "Start what the tests need, then run pytest."),
        "chaos": Verb("chaos", "app", "Break the stack on purpose and compare with a recount."),
        "sim": Verb("sim", "app", "Run the core under seeded faults, thousands of times."),
        "bench": Verb("bench", "app", "Measure throughput and latency."),
        "native": Verb("native", "app", "Build the part of the lane that is written in Rust."),
        "new": Verb("new", "app", "Make the files of a new system."),
        "where": Verb("where", "app", "Show every place that belongs to a system."),
        "dashboards": Verb("dashboards", "app", "Generate the Grafana dashboards."),
    },
}


def available() -> dict[str, dict[str, Verb]]:
    """The table without the verbs whose module is not there."""
    return {
        section: {name: verb for name, verb in verbs.items() if _exists(verb)}
        for section, verbs in VERBS.items()
    }


def _exists(verb: Verb) -> bool:
    return importlib.util.find_spec(f"infra.cli.{verb.module}") is not None


class Verbs(TyperGroup):
    """Looks verbs up in the table; the help page is drawn from it and imports none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for verbs in available().values() for name in verbs]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = {name: verb for verbs in available().values() for name, verb in verbs.items()}
        verb = found.get(cmd_name)
        if verb is None:
            return None
        module = importlib.import_module(f"infra.cli.{verb.module}")
        command = typer.main.get_command(getattr(module, verb.attribute))
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        console = Console()
        console.print("\n [bold]headrace[/] VERB …   (or [bold]./dev[/] VERB …)\n")
        for section, verbs in available().items():
            if verbs:
                console.print(f" [bold]{section}[/]")
                console.print(_listing((name, verb.help) for name, verb in verbs.items()))
                console.print()
        console.print(" headrace VERB --help shows a verb's options and examples.\n")


def _listing(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=14, style="cyan")
    table.add_column()
    for name, text in rows:
        table.add_row(f"   {name}", text)
    return table


app = typer.Typer(cls=Verbs, no_args_is_help=True, add_completion=False)


@app.callback()
def headrace() -> None:
    """An event-driven platform centred on Kafka."""


def main() -> None:
    """Run a verb. Errors that the user can do something about are shown as sentences."""
    try:
        app()
    except StackError as error:
        message = f"[red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
