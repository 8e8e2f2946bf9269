"""The benchmark's topic: ad clicks of seven fields, the same ones on every machine.

Event time only moves forward, ten records a millisecond; keys are random campaigns; four
partitions, lz4. The records of a given number are a function of that number alone, so what any
reader must arrive at is computed here and never measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from streams.runtime import kafka
from streams.runtime.settings import Settings
from streams.runtime.topic import RecordType, Topic
from tests.bench.log import fill

PARTITIONS = 4
CAMPAIGNS = 1_000
START_MS = 1_700_000_000_000
ROWS_A_MS = 10
WINDOW_MS = 10_000
SEED = 11
_CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class AdClick:
    """One click."""

    click_id: str
    ad_id: int
    campaign_id: int
    user_id: int
    event_time: int
    country: str
    cost_micros: int


AD_CLICK = RecordType(
    fullname="headrace.bench.AdClick",
    avsc=json.dumps(
        {
            "type": "record",
            "name": "AdClick",
            "namespace": "headrace.bench",
            "fields": [
                {"name": "click_id", "type": "string"},
                {"name": "ad_id", "type": "long"},
                {"name": "campaign_id", "type": "long"},
                {"name": "user_id", "type": "long"},
                {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "country", "type": "string"},
                {"name": "cost_micros", "type": "long"},
            ],
        },
        separators=(",", ":"),
    ),
    dtypes={
        "click_id": pl.String,
        "ad_id": pl.Int64,
        "campaign_id": pl.Int64,
        "user_id": pl.Int64,
        "event_time": pl.Datetime("ms", "UTC"),
        "country": pl.String,
        "cost_micros": pl.Int64,
    },
    row=AdClick,
)


@dataclass(frozen=True)
class Totals:
    """What the records of some reader add up to."""

    count: int
    cost_micros: int


def topic(records: int) -> Topic:
    """The topic that holds the first `records` clicks."""
    return Topic(
        name=f"bench.clicks-{records}",
        records=(AD_CLICK,),
        key="campaign_id",
        event_time="event_time",
        partitions=PARTITIONS,
        owner="bench",
        doc="Generated clicks for benchmarks.",
    )


def ensure(settings: Settings, records: int) -> Topic:
    """The topic, filled; generates it unless it is there and whole."""
    wanted = topic(records)
    fill(settings, wanted, records, ((AD_CLICK.name, frame) for frame in frames(records)))
    return wanted


def frames(records: int) -> Iterator[pl.DataFrame]:
    """The clicks in order, some at a time."""
    for start in range(0, records, _CHUNK):
        campaigns, costs, rest = _drawn(start, records)
        height = len(campaigns)
        ids = rest.bytes(16 * height).hex()
        yield pl.DataFrame(
            {
                "click_id": [ids[at : at + 32] for at in range(0, 32 * height, 32)],
                "ad_id": rest.integers(10_000, size=height),
                "campaign_id": campaigns,
                "user_id": rest.integers(1 << 40, size=height),
                "event_time": _times(start, height),
                "country": np.array(["US", "DE", "IN", "BR"])[rest.integers(4, size=height)],
                "cost_micros": costs,
            }
        )


def _times(start: int, height: int) -> pl.Series:
    times = START_MS + np.arange(start, start + height) // ROWS_A_MS
    return pl.Series(times).cast(pl.Datetime("ms", "UTC"))


def _drawn(start: int, records: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Campaigns and costs of the chunk at `start`, and the generator of its other fields."""
    draw = np.random.default_rng([SEED, start])
    height = min(_CHUNK, records - start)
    return draw.integers(CAMPAIGNS, size=height), draw.integers(1_000_000, size=height), draw


def totals(records: int, consumed: Mapping[int, int] | None = None) -> Totals:
    """What the first `consumed[p]` records of each partition add up to (None: all records)."""
    partition = np.array([kafka.partition_of(str(c), PARTITIONS) for c in range(CAMPAIGNS)])
    left = dict(consumed) if consumed is not None else dict.fromkeys(range(PARTITIONS), records)
    count = cost = 0
    for start in range(0, records, _CHUNK):
        campaigns, costs, _ = _drawn(start, records)
        of = partition[campaigns]
        for p in range(PARTITIONS):
            taken = costs[of == p][: left.get(p, 0)]
            left[p] = left.get(p, 0) - len(taken)
            count, cost = count + len(taken), cost + int(taken.sum())
    return Totals(count, cost)
