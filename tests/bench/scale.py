"""`bench scale`: more workers on one topic, and more keys in one state.

**Workers.** 1, 2 and 4 worker processes of one consumer group fold the lane benchmark's rule over
twelve partitions into Valkey. The topic is filled inside one Kafka transaction, so that nobody can
read it while the workers start and share the partitions out; the clock starts with the commit and
stops when the last position is stored. Broker, store and workers share the machine, so the sum of
events a second is bounded by its cores: what scaling costs shows in the events per processor
second.

**Keys.** The states that grow (totals by key in an open window, ids of one horizon), without broker
or store, fed as many events as they have keys, at least two million.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import polars as pl
import psutil
from confluent_kafka.admin import AdminClient

from connectors.columnar import FrameEncoder
from connectors.encode import Encoder
from schemas.apply import apply
from schemas.registry import schema_ids
from sinks.open import open_sink
from streams.runtime import kafka
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel
from streams.runtime.topic import Topic
from tests.bench import clicks, report, rule
from tests.bench.measure import Run, broker_process, python, run
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.turns import WrongTotals
from tests.bench.workers import Server, until, workers

RECORDS = 3_000_000
PARTITIONS = 12
WORKERS = (1, 2, 4)
NAME = "bench-scale"
KINDS = {"totals": "count and sum by key", "ids": "ids of one horizon"}
KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
FED_MIN = 2_000_000
REPEATED_UP_TO = 1_000_000
"""States with more keys are measured once: filling them takes longest."""
SHARE_TIMEOUT_S = 60.0
FOLD_TIMEOUT_S = 300.0
TRANSACTION = {
    "transactional.id": NAME,
    "transaction.timeout.ms": 600_000,
    "linger.ms": 50,
    "batch.num.messages": 50_000,
}


class Folded(msgspec.Struct, frozen=True):
    """One run of a group of workers; processor seconds of all workers, and of the broker."""

    seconds: float
    cpu_s: float
    broker_cpu_s: float | None
    rss_mib: int


def topic() -> Topic:
    """Clicks over twelve partitions."""
    return replace(clicks.topic(0), name="bench.scale", partitions=PARTITIONS)


def projections() -> list[Projection]:
    """What each worker runs."""
    one = rule.projection(topic(), "redis")
    return [replace(one, name=NAME, model=ReadModel(NAME, one.model.tables))]


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print tables, write the result file; returns the result. `records` is the size of
    the topic.
    """
    settings, records = Settings.read(), records or RECORDS
    groups = _groups(settings, runs, records)
    keys = KEYS if records >= FED_MIN else tuple(n for n in KEYS if n <= records)
    states = {kind: _growth(kind, keys, runs, min(records, FED_MIN)) for kind in KINDS}
    result = {
        "records": records,
        "partitions": PARTITIONS,
        "totals": "equal to the generator's in every run",
        "workers": groups,
        "states": states,
    }
    _print(result)
    report.save("scale", result)
    return result


# -- workers ----------------------------------------------------------------------------------


def _groups(settings: Settings, runs: int, records: int) -> list[dict[str, Any]]:
    broker = broker_process(settings)
    measured: dict[int, list[Folded]] = {count: [] for count in WORKERS}
    for turn in range(runs):
        for count in WORKERS:
            measured[count].append(one := folded(settings, count, records, broker))
            report.console.print(
                f"  {turn + 1}/{runs} {count} workers {records / one.seconds:>12,.0f}/s"
            )
    drop_topics(settings, [topic()])
    return [_figures(count, records, found) for count, found in measured.items()]


def folded(
    settings: Settings, count: int, records: int, broker: psutil.Process | None = None
) -> Folded:
    """So many workers fold a topic of so many records. Raises `WrongTotals`."""
    drop_topics(settings, [topic()])
    drop_read_model(settings, NAME)
    apply(settings, [topic()])
    with TemporaryDirectory() as folder, ExitStack() as stack:
        producer = _filled(settings, records)
        running = stack.enter_context(workers(Path(folder), "scale", count))
        admin = kafka.admin(settings.kafka)
        until(lambda: _shared_out(admin, count), "an even share each", SHARE_TIMEOUT_S, 0.2)
        before = _cpu_s(running, broker)
        began = time.perf_counter()
        producer.commit_transaction()
        sink = open_sink("redis", projections()[0].model, settings)
        until(
            lambda: sum(p.next_offset for p in sink.positions(1).values()) >= records,
            "the last record",
            FOLD_TIMEOUT_S,
        )
        seconds = time.perf_counter() - began
        own, brokers = (b - a for a, b in zip(before, _cpu_s(running, broker), strict=True))
        rss = sum(one.rss() for one in running) // 2**20
        rows = pl.concat(sink.rows(1, "windows"))
        counted = clicks.Totals(int(rows["clicks"].sum()), int(rows["cost_micros"].sum()))
        sink.close()
    if counted != (wanted := clicks.totals(records)):
        raise WrongTotals(f"{count} workers: {counted}, the generator made {wanted}")
    return Folded(seconds, own, None if broker is None else brokers, rss)


def _filled(settings: Settings, records: int) -> Any:
    """A producer whose open transaction holds the whole topic."""
    frames = FrameEncoder(Encoder(topic(), schema_ids(topic(), settings.registry)))
    producer = kafka.producer(settings.kafka, **TRANSACTION)
    producer.init_transactions()
    producer.begin_transaction()
    for frame in clicks.frames(records):
        for key, value in frames.encode(clicks.AD_CLICK.name, frame):
            while True:
                try:
                    producer.produce(topic().name, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return producer


def _shared_out(admin: AdminClient, count: int) -> bool:
    """Whether every member of the group holds its even share of the partitions."""
    members = admin.describe_consumer_groups([NAME])[NAME].result(10.0).members
    shares = [len(one.assignment.topic_partitions) for one in members]
    return shares == [PARTITIONS // count] * count


def _cpu_s(running: list[Server], broker: psutil.Process | None) -> tuple[float, float]:
    own = sum(one.cpu_s() for one in running)
    times = None if broker is None else broker.cpu_times()
    return own, 0.0 if times is None else float(times.user + times.system)


def _figures(count: int, records: int, runs: list[Folded]) -> dict[str, Any]:
    brokers = [one.broker_cpu_s for one in runs if one.broker_cpu_s is not None]
    cpu_s = median(one.cpu_s for one in runs)
    return {
        "workers": count,
        "events_per_s": round(records / median(one.seconds for one in runs)),
        "cpu_s_per_million": round(cpu_s / records * 1e6, 3),
        "events_per_cpu_s": round(records / cpu_s),
        "broker_cpu_s_per_million": round(median(brokers) / records * 1e6, 3) if brokers else None,
        "rss_mib": max(one.rss_mib for one in runs),
        "runs": [msgspec.to_builtins(one) for one in runs],
    }


# -- keys -------------------------------------------------------------------------------------


def _growth(kind: str, sizes: tuple[int, ...], runs: int, fed_min: int) -> list[dict[str, Any]]:
    """Figures by size of one kind of state."""
    found = []
    for keys in sizes:
        events = max(fed_min, keys)
        times = runs if keys <= REPEATED_UP_TO else 1
        taken = [run(python("growth", kind, keys, events)) for _ in range(times)]
        found.append(_state(keys, taken))
        report.console.print(
            f"  {KINDS[kind]}, {keys:>10,} keys {found[-1]['cpu_s_per_million']:>8.2f} CPU s/M"
        )
    return found


def _state(keys: int, runs: list[Run]) -> dict[str, Any]:
    per_million = 1e6 / runs[0].events
    return {
        "keys": keys,
        "events": runs[0].events,
        "cpu_s_per_million": round(median(one.finish.cpu_s for one in runs) * per_million, 3),
        "rss_peak_mib": max(one.finish.rss_peak_mib for one in runs),
    }


def _print(result: dict[str, Any]) -> None:
    keys = ("workers", "events_per_s", "events_per_cpu_s", "cpu_s_per_million", "rss_mib")
    columns = ("workers", "events/s", "events/CPU s", "CPU s/M", "MiB, all")
    rows = [tuple(one[key] for key in keys) for one in result["workers"]]
    report.table(f"{result['records']:,} clicks, {PARTITIONS} partitions", columns, rows)
    sizes = ("keys", "cpu_s_per_million", "rss_peak_mib")
    for kind, title in KINDS.items():
        table = [tuple(one[key] for key in sizes) for one in result["states"][kind]]
        report.table(title, ("keys", "CPU s/M", "peak MiB"), table)
