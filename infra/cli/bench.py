"""`headrace bench`: throughput and latency on this machine, against the local stack."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from infra.local import Stack
from infra.local.home import CHECKOUT

app = typer.Typer(add_completion=False)

BENCHMARKS = {
    "lane": "The lane with all guarantees beside Faust, Quix, Bytewax, Kafka Streams and Flink.",
    "ysb": "The Yahoo Streaming Benchmark beside Flink, Kafka Streams and plain Faust.",
    "nexmark": "Seven queries of Nexmark on Headrace, Flink SQL and Kafka Streams.",
    "latency": "From the intended send time of an event to its being readable, p50 to p99.",
    "decide": "Decisions a second, latency of verdicts over HTTP, restart with a million keys.",
    "ingest": "Events a second over HTTP until the log has them, beside the raw producer.",
    "api": "Reads a second and p99 of the read API, idle and beside a rebuild.",
    "notifications": "One-time codes with and without a campaign of 100,000 beside them.",
    "webhooks": "Deliveries a second, and what a dead endpoint costs the healthy ones, p50 to p99.",
    "feed": "Insertions into feeds a second, by the rules alone and with their store.",
    "limiter": "What a decision by rules adds to a bare call of Redis, p50 and p99.",
    "ids": "Unique ids a second, in one process and over HTTP.",
    "links": "Redirects at half of the most a second, p50 and p99: warm, cold, all at one link.",
    "pastes": "Pastes made and read over HTTP; how soon expired ones are provably gone.",
    "typeahead": "Suggestions from a million terms: memory, look-ups, p99 over HTTP, swapping.",
    "chat": "Ten thousand sockets on one process: entries told a second, memory a socket.",
    "rebuild": "Rows a second of rebuilding each read model.",
    "sinks": "Rows a second into every store, by our drivers and by the clients alone.",
    "paced": "From due to durable through one lane at 25, 50 and 75 % load, p50 to p99.9.",
    "scale": "1, 2 and 4 workers on twelve partitions; states of 10,000 to 10,000,000 keys.",
    "footprint": "Memory, idle processor time and start-up of a worker and of the API.",
    "soak": "The memory of a worker over half an hour (--minutes).",
    "all": "Every one of them at its default size, then the report.",
    "report": "The page of all results, infra/docs/benchmarks.md.",
}
PARTS = {
    "lane": ("kafka", "registry", "redis"),
    "latency": ("kafka", "registry", "redis"),
    "nexmark": ("kafka", "registry", "redis"),
    "decide": ("kafka", "registry", "redis", "s3"),
    "ingest": ("kafka", "registry", "redis"),
    "api": ("kafka", "registry", "redis", "clickhouse"),
    "notifications": ("kafka", "registry", "redis"),
    "webhooks": ("kafka", "registry", "redis", "cassandra", "s3"),
    "feed": ("redis",),
    "limiter": ("redis",),
    "ids": ("kafka", "registry", "redis", "s3"),
    "links": ("kafka", "registry", "redis", "cassandra", "s3"),
    "pastes": ("kafka", "registry", "redis", "cassandra", "s3"),
    "typeahead": ("kafka", "registry", "redis", "s3"),
    "chat": ("kafka", "registry", "redis", "cassandra"),
    "rebuild": ("kafka", "registry", "redis", "clickhouse", "cassandra", "s3"),
    "sinks": ("redis", "clickhouse", "cassandra", "s3"),
    "paced": ("kafka", "registry", "redis"),
    "scale": ("kafka", "registry", "redis"),
    "footprint": ("kafka", "registry", "redis", "clickhouse", "cassandra", "s3"),
    "soak": ("kafka", "registry", "redis", "clickhouse"),
    "all": ("kafka", "registry", "redis", "clickhouse", "cassandra", "s3"),
    "report": (),
    "ysb": ("kafka", "registry", "redis"),
}


@app.command(
    epilog="Examples: [bold]headrace bench lane[/] · headrace bench lane --only lane,flink · "
    "headrace bench latency --runs 1 · headrace bench --clean"
)
def bench(
    name: Annotated[str | None, typer.Argument(help=" | ".join(BENCHMARKS))] = None,
    *,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each; the median counts.")] = 3,
    records: Annotated[int | None, typer.Option(min=1_000, help="Another size.")] = None,
    only: Annotated[str | None, typer.Option(help="These contenders alone: a,b.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Of the soak.")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="Delete topics and data after.")] = False,
    stack: Annotated[bool, typer.Option(help="Start the servers first.")] = True,
) -> None:
    """Measure. Without a name, list what there is.

    Results go to tests/bench/results/NAME.json with the machine, the versions and the load.
    Generated topics are kept for the next run unless --clean is given.
    """
    if name is None and not clean:
        _list()
        return
    if name is not None and name not in BENCHMARKS:
        raise typer.BadParameter(f"no benchmark {name}; there are {', '.join(BENCHMARKS)}")
    if minutes is not None and name != "soak":
        raise typer.BadParameter("--minutes is for the soak")
    if stack and PARTS[name or "lane"]:
        Stack().up(PARTS[name or "lane"])
    command = [sys.executable, "-m", "tests.bench", *([name] if name else [])]
    command += ["--runs", str(runs), *(["--records", str(records)] if records else [])]
    command += ["--only", only] if only else []
    command += ["--minutes", str(minutes)] if minutes else []
    command += ["--clean"] if clean else []
    raise typer.Exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)


def _list() -> None:
    table = Table.grid(padding=(0, 2))
    for name, text in BENCHMARKS.items():
        table.add_row(f"[cyan]{name}[/]", text)
    Console().print(table)
