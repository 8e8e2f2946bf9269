"""`headrace worker`: the agents of some systems, in processes that are kept running."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from infra.local.ports import free_port
from streams import catalog
from streams.runtime.logging import configure
from streams.runtime.settings import Settings
from streams.runtime.supervisor import Supervisor

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples: [bold]headrace worker[/] · "
    "[bold]headrace worker leaderboard ads-windows --processes 2[/] · "
    "[bold]headrace worker ads --port 9100[/]"
)
def worker(
    names: Annotated[
        list[str] | None, typer.Argument(help="Systems or read models; all systems if left out.")
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes; they share the partitions.")
    ] = 1,
    port: Annotated[
        int, typer.Option(help="Of the first process's probes and metrics; 0 picks free ones.")
    ] = 0,
) -> None:
    """Fold the log into read models until interrupted.

    Each process runs all the agents; Kafka spreads the partitions over the processes. A process
    that dies is started again with backoff; SIGTERM drains. Several workers on several machines
    form one group by themselves.
    """
    settings = Settings.read()
    configure(settings.log_level)
    agents = agents_of(names or list(catalog.SYSTEMS))
    commands = []
    for slot in range(processes):
        at = port + slot if port else free_port()
        own = ["--port", str(at), "--slot", str(slot), "--restarts", "{restarts}"]
        commands.append([sys.executable, "-m", "streams", *agents, *own])
    supervisor = Supervisor(commands)
    signal.signal(signal.SIGTERM, supervisor.stop)
    signal.signal(signal.SIGINT, supervisor.stop)
    raise typer.Exit(supervisor.run())


def agents_of(names: list[str]) -> list[str]:
    """The agents of systems, and single ones, without repeats, in order."""
    agents: dict[str, None] = {}
    for name in names:
        if name in catalog.SYSTEMS:
            agents |= {one.name: None for one in catalog.agents(catalog.load(name))}
            continue
        try:
            catalog.agent(name)
        except catalog.UnknownSystem as error:
            raise typer.BadParameter(str(error)) from error
        agents[name] = None
    return list(agents)
