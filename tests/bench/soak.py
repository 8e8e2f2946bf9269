"""`bench soak`: does a worker's memory grow? Ads and leaderboards under a paced load.

Event time runs faster than the clock, so that what a worker must remember (an hour of ads, a
week of scores) has come and gone many times by the end: memory that still grows then is a leak.
The slope is fitted to everything after the first minutes; its interval comes from resampling
the residuals in blocks, because neighbouring samples are not independent of each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from connectors.bulk import BulkProducer
from connectors.encode import Encoder
from schemas.apply import apply
from schemas.registry import schema_ids
from sinks.open import open_sink
from streams import catalog
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from tests.bench import report, traffic
from tests.bench.clicks import START_MS
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.workers import Server, until, workers

MINUTES = 30.0
EVENTS_PER_S = 450
TICK_S = 1.0
SAMPLE_EVERY_S = 5.0
SETTLED_AFTER_S = 300.0
BLOCK_S = 120.0
RESAMPLED = 2_000
DRAIN_TIMEOUT_S = 60.0
MODELS = ("ads-windows", "ads-events", "leaderboard")


@dataclass(frozen=True)
class Stream:
    """One topic's load: its share of the events, and event time per second of the clock."""

    model: str
    share: float
    speed: int


STREAMS = (Stream("ads-windows", 2 / 3, 60), Stream("leaderboard", 1 / 3, 5_000))


def projections() -> list[Projection]:
    """What the worker runs."""
    return [traffic.double(name, "soak") for name in MODELS]


def bench(runs: int, records: int | None, minutes: float = MINUTES) -> dict[str, Any]:
    """Run it once, print the slope, write the result file; returns the result. `records` is how
    many events are sent in all.
    """
    settings = Settings.read()
    rate = EVENTS_PER_S if records is None else max(1, round(records / (minutes * 60)))
    _clean(settings)
    apply(settings, {one.topic.name: one.topic for one in projections()}.values())
    with TemporaryDirectory() as folder, workers(Path(folder), "soak") as (worker,):
        samples, sent, cpu_s = _soak(settings, worker, rate, minutes * 60)
        _until_folded(settings, sent)
    _clean(settings)
    seconds, rss = np.array(samples).T
    result = {
        "minutes": minutes,
        "events_per_s": rate,
        "events": sum(sent.values()),
        "cores": round(cpu_s / (minutes * 60), 3),
        **slope(seconds, rss),
        "rss_mib": {"first": rss[0], "median": float(np.median(rss)), "max": float(rss.max())},
        "seconds": seconds.tolist(),
        "rss_by_second_mib": rss.tolist(),
    }
    keys = ("events", "cores", "slope_mib_per_h", "low", "high")
    columns = ("minutes", "events", "cores", "MiB/h", "95 % from", "to")
    report.table("memory of a worker", columns, [(minutes, *(result[key] for key in keys))])
    report.save("soak", result)
    return result


def slope(
    seconds: npt.NDArray[np.float64], rss_mib: npt.NDArray[np.float64]
) -> dict[str, float | None]:
    """MiB an hour after `SETTLED_AFTER_S` by least squares, with its 95 % interval."""
    settled = seconds >= SETTLED_AFTER_S
    hours, rss = seconds[settled] / 3_600, rss_mib[settled]
    size = round(BLOCK_S / SAMPLE_EVERY_S)
    if len(rss) < 2 * size:
        return {"slope_mib_per_h": None, "low": None, "high": None}
    fitted = np.polynomial.Polynomial.fit(hours, rss, 1)
    found = float(fitted.convert().coef[1])
    residuals = rss - fitted(hours)
    draw = np.random.default_rng(1)
    starts = draw.integers(len(rss) - size + 1, size=(RESAMPLED, -(-len(rss) // size)))
    order = (starts[:, :, None] + np.arange(size)).reshape(RESAMPLED, -1)[:, : len(rss)]
    centred = hours - hours.mean()
    moved = residuals[order] @ centred / (centred @ centred)
    low, high = np.percentile(found - moved, [2.5, 97.5])
    return {
        "slope_mib_per_h": round(found, 2),
        "low": round(float(low), 2),
        "high": round(float(high), 2),
    }


def _soak(
    settings: Settings, worker: Server, rate: int, seconds: float
) -> tuple[list[tuple[float, float]], dict[str, int], float]:
    """Send for so long: (second, MiB) samples, events by topic, the worker's processor seconds."""
    samples: list[tuple[float, float]] = []
    before_s, sent = worker.cpu_s(), dict.fromkeys((one.model for one in STREAMS), 0)
    with ExitStack() as stack:
        senders = [
            (one, _producer(settings, one, stack), _rows(one, rate * one.share)) for one in STREAMS
        ]
        start_s, next_sample_s = time.monotonic(), 0.0
        for tick in range(int(seconds / TICK_S)):
            time.sleep(max(0.0, start_s + tick * TICK_S - time.monotonic()))
            for stream, producer, rows in senders:
                record, frame = next(rows)
                sent[stream.model] += producer.send(record, frame)
            if tick * TICK_S >= next_sample_s:
                worker.ready()
                elapsed_s = round(time.monotonic() - start_s, 1)
                samples.append((elapsed_s, round(worker.rss() / 2**20, 2)))
                next_sample_s += SAMPLE_EVERY_S
    return samples, sent, worker.cpu_s() - before_s


def _producer(settings: Settings, stream: Stream, stack: ExitStack) -> BulkProducer:
    topic = traffic.double(stream.model, "soak").topic
    encoder = Encoder(topic, schema_ids(topic, settings.registry))
    return stack.enter_context(BulkProducer(settings.kafka, encoder))


def _rows(stream: Stream, rate: float) -> Iterator[tuple[str, pl.DataFrame]]:
    """Frames of one tick each, for ever; event time goes on at the stream's speed."""
    make = traffic.SOURCES[catalog.projection(stream.model)[1].topic.name]
    height, n = max(1, round(rate * TICK_S)), 0
    for record, frame in make(2**40):
        for tick in frame.iter_slices(height):
            step_ms = 1_000 * stream.speed * TICK_S / height
            times = START_MS + ((n + np.arange(tick.height)) * step_ms).astype(np.int64)
            n += tick.height
            yield (
                record,
                tick.with_columns(pl.Series("event_time", times).cast(pl.Datetime("ms", "UTC"))),
            )


def _until_folded(settings: Settings, sent: dict[str, int]) -> None:
    """Every read model has every event."""
    wanted = {**sent, "ads-events": sent["ads-windows"]}
    for name in MODELS:
        sink = open_sink((one := traffic.double(name, "soak")).store, one.model, settings)

        def folded(name: str = name, sink: Any = sink) -> bool:
            held = sink.positions(sink.live_version()).values()
            return sum(at.counts.get("applied", 0) for at in held) == wanted[name]

        until(folded, f"{name} to hold all {wanted[name]} events", DRAIN_TIMEOUT_S, 0.2)
        sink.close()


def _clean(settings: Settings) -> None:
    """Nothing of an earlier run is left."""
    for one in projections():
        drop_topics(settings, [one.topic])
        if one.store == "redis":
            drop_read_model(settings, one.name)
        else:
            sink = open_sink(one.store, one.model, settings)
            live = sink.live_version()
            sink.switch(live + 1)
            sink.drop(live)
            sink.close()
