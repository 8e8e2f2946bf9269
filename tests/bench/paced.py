"""`bench paced`: from the intended send time of an event to its result being durable in the store.

Open loop. The rule of `bench lane`, all guarantees on, in a worker process of its own; a
generator beside it sends each click when it is due; broker, store, worker and generator share the
machine. First the rate that this whole machine can sustain is found (the generator as fast as it
can, until the last result is stored), then 25, 50 and 75 % of it are sent for some seconds. An
event's clock starts when it was due and stops when the write that holds its result was confirmed;
the first seconds are not counted. Since the generator shares the cores, the rate is the machine's
and not the lane's: alone, on a log that is already there, the lane is several times as fast (see
`lane`).
"""

from __future__ import annotations

import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from infra.local.home import CHECKOUT
from schemas.apply import apply
from sinks.open import open_sink
from streams.runtime import kafka
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings, home
from streams.runtime.sink import ReadModel, Sink, Write
from streams.runtime.topic import Topic
from tests.bench import clicks, report, rule
from tests.bench.contenders.pacer import Sent
from tests.bench.measure import python
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.workers import Server, until, workers

NAME = "bench-paced"
FLAT_OUT = 500_000
SHARES = (0.25, 0.5, 0.75)
SECONDS = 10.0
WARM_UP_S = 2.0
PATIENCE_S = 120.0
PERCENTILES = (50, 90, 99, 99.9)
WRITE = struct.Struct("<iqqd")
"""Partition, first and next offset, and when the write was confirmed (`CLOCK_MONOTONIC`)."""


def topic() -> Topic:
    """The clicks, as they come."""
    return replace(clicks.topic(0), name="bench.paced")


def projections() -> list[Projection]:
    """What the worker runs."""
    one = rule.projection(topic(), "redis")
    return [replace(one, name=NAME, model=ReadModel(NAME, one.model.tables))]


class Timed:
    """A sink that notes when each write was confirmed."""

    def __init__(self, sink: Sink, file: Path) -> None:
        self._sink = sink
        self._out = file.open("wb")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def write(self, version: int, write: Write) -> None:
        self._sink.write(version, write)
        first = write.expected.next_offset if write.expected else 0
        place = write.partition, first, write.position.next_offset
        self._out.write(WRITE.pack(*place, time.monotonic()))

    def close(self) -> None:
        self._out.close()
        self._sink.close()


def sink(projection: Projection, settings: Settings) -> Any:
    """What the worker writes to."""
    return Timed(open_sink(projection.store, projection.model, settings), home() / "writes")


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is the size of
    the run that finds the sustainable rate.
    """
    settings = Settings.read()
    flat_out = records or FLAT_OUT
    rate = round(median(sustained(settings, flat_out) for _ in range(runs)))
    report.console.print(f"sustained with the generator beside it: {rate:,}/s")
    loads = {share: [paced(settings, int(rate * share)) for _ in range(runs)] for share in SHARES}
    result = {
        "sustained_events_per_s": rate,
        "seconds": SECONDS,
        "loads": [_figures(share, int(rate * share), found) for share, found in loads.items()],
    }
    keys = ("p50", "p90", "p99", "p99.9", "max")
    rows = [
        (one["title"], one["rate"], *(one["stored_ms"][k] for k in keys)) for one in result["loads"]
    ]
    report.table("due → durable, ms", ("load", "events/s", *keys), rows)
    report.save("paced", result)
    return result


def sustained(settings: Settings, records: int) -> float:
    """Events a second from the generator's start until the last result is stored."""
    with _running(settings) as worker:
        sent = _send(settings, records, 0)
        seconds = time.monotonic() - sent.start_s
        worker.ready()
    return records / seconds


def paced(settings: Settings, rate: int) -> dict[str, float]:
    """Percentiles in milliseconds at a rate, and processor seconds a second of the worker."""
    records = int(rate * (WARM_UP_S + SECONDS))
    with TemporaryDirectory() as folder:
        with _running(settings, Path(folder)) as worker:
            before_s = worker.cpu_s()
            sent = _send(settings, records, rate)
            cores = (worker.cpu_s() - before_s) / sent.seconds
        written = (Path(folder) / "0" / "writes").read_bytes()
    taken = latencies(written, clicks.frames(records), rate, sent.start_s)
    found = np.percentile(taken, [*PERCENTILES, 100], method="higher").round(2).tolist()
    names = [*(f"p{p}" for p in PERCENTILES), "max"]
    return {
        **dict(zip(names, found, strict=True)),
        "cores": cores,
        "generator_late": sent.late_ms_max,
    }


def latencies(
    written: bytes, frames: Iterator[Any], rate: int, start_s: float
) -> npt.NDArray[np.float64]:
    """Milliseconds of every event due after the warm-up. Event n of the generator is the next
    record of its key's partition, so a write's offsets say which events it holds.
    """
    campaigns = np.concatenate([frame["campaign_id"].to_numpy() for frame in frames])
    of = np.array([kafka.partition_of(str(c), clicks.PARTITIONS) for c in range(clicks.CAMPAIGNS)])
    partition = of[campaigns]
    due = start_s + np.arange(len(campaigns)) / rate
    stored = np.full(len(campaigns), np.nan)
    numbers = [np.flatnonzero(partition == p) for p in range(clicks.PARTITIONS)]
    for p, first, following, at_s in WRITE.iter_unpack(written):
        stored[numbers[p][first:following]] = at_s
    if np.isnan(stored).any():
        raise ValueError(f"{int(np.isnan(stored).sum())} events were never stored")
    counted = due >= start_s + WARM_UP_S
    return (stored - due)[counted] * 1_000


@contextmanager
def _running(settings: Settings, folder: Path | None = None) -> Iterator[Server]:
    """A worker on an empty topic."""
    drop_topics(settings, [topic()])
    drop_read_model(settings, NAME)
    apply(settings, [topic()])
    with (
        TemporaryDirectory() as own,
        workers(folder or Path(own), "paced") as (worker,),
    ):
        yield worker
    drop_topics(settings, [topic()])


def _send(settings: Settings, records: int, rate: int) -> Sent:
    """Run the generator and wait until its last event is stored."""
    command = python("pacer", topic().name, records, rate)
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the generator failed: {done.stderr[-2_000:]}")
    stored = open_sink("redis", projections()[0].model, settings)
    until(
        lambda: sum(at.next_offset for at in stored.positions(1).values()) >= records,
        "the last event to be stored",
        PATIENCE_S,
        0.005,
    )
    stored.close()
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Sent)


def _figures(share: float, rate: int, runs: list[dict[str, float]]) -> dict[str, Any]:
    middle = {key: round(median(one[key] for one in runs), 2) for key in runs[0]}
    levels = {key: ms for key, ms in middle.items() if key.startswith(("p", "max"))}
    return {
        "title": f"{share:.0%} of the sustained rate",
        "rate": rate,
        "stored_ms": levels,
        "worker_cores": middle["cores"],
        "generator_late_ms_max": middle["generator_late"],
    }
