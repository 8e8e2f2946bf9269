"""The benchmark's events, as `yahoo/streaming-benchmarks` makes them (data/src/setup/core.clj).

100 campaigns of 10 ads. An event is seven texts; in the catch-up mode events are 10 ms of event
time apart and user and page are fresh. Everything is a function of the seed and the number of the
event, so that what any engine must have counted is computed here and never measured.

Event n is the record n // 4 of partition n % 4, without a key: in every partition event time only
goes forward, and the log is the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.topic import RecordType, Topic

Variant = Literal["json", "avro"]
VARIANTS: tuple[Variant, ...] = ("json", "avro")
CAMPAIGNS = 100
ADS = 1_000
PARTITIONS = 4
START_MS = 1_700_000_000_000
APART_MS = 10
WINDOW_MS = 10_000
SEED = 13
CHUNK = 100_000
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
VIEW = "view"
IP = "1.2.3.4"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AdEvent:
    """One event. In JSON `event_time` is a string of milliseconds."""

    user_id: str
    page_id: str
    ad_id: str
    ad_type: str
    event_type: str
    event_time: int
    ip_address: str


_TIME = {"type": "long", "logicalType": "timestamp-millis"}
AD_EVENT = RecordType(
    fullname="headrace.bench.AdEvent",
    avsc=json.dumps(
        {
            "type": "record",
            "name": "AdEvent",
            "namespace": "headrace.bench",
            "fields": [
                {"name": name, "type": _TIME if name == "event_time" else "string"}
                for name in AdEvent.__slots__
            ],
        },
        separators=(",", ":"),
    ),
    dtypes={
        name: pl.Datetime("ms", "UTC") if name == "event_time" else pl.String
        for name in AdEvent.__slots__
    },
    row=AdEvent,
)


def topic(variant: Variant, name: str) -> Topic:
    """`bench.ysb-<variant>-<name>`; `name` is the number of records, or what the topic is for."""
    return Topic(
        name=f"bench.ysb-{variant}-{name}",
        records=(AD_EVENT,),
        key="ad_id",
        event_time="event_time",
        partitions=PARTITIONS,
        owner="bench",
        doc="Events of the Yahoo Streaming Benchmark.",
        encoding=variant,
    )


def uuids(raw: npt.NDArray[np.uint8]) -> list[str]:
    """Random UUIDs (version 4) of rows of 16 random bytes."""
    raw = raw.copy()
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    digits = raw.tobytes().hex()
    return [
        f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}"
        for one in (digits[at : at + 32] for at in range(0, len(digits), 32))
    ]


def _ids(count: int, stream: int) -> list[str]:
    raw = np.random.default_rng([SEED, stream, count]).bytes(16 * count)
    return uuids(np.frombuffer(raw, np.uint8).reshape(count, 16))


CAMPAIGN_IDS: list[str] = _ids(CAMPAIGNS, 1)
AD_IDS: list[str] = _ids(ADS, 2)
"""Ad n belongs to campaign n // 10: the side table."""
CAMPAIGN_OF: Ints = np.arange(ADS) * CAMPAIGNS // ADS


def frames(records: int) -> Iterator[pl.DataFrame]:
    """The events of the catch-up mode in order, some at a time, as columns of `AD_EVENT`."""
    for start in range(0, records, CHUNK):
        ads, kinds, rest = _drawn(start, records)
        height = len(ads)
        names = uuids(np.frombuffer(rest.bytes(32 * height), np.uint8).reshape(2 * height, 16))
        yield pl.DataFrame(
            {
                "user_id": names[:height],
                "page_id": names[height:],
                "ad_id": pl.Series(AD_IDS).gather(ads),
                "ad_type": pl.Series(AD_TYPES).gather(rest.integers(len(AD_TYPES), size=height)),
                "event_type": pl.Series(EVENT_TYPES).gather(kinds),
                "event_time": pl.Series(_times(start, height)).cast(pl.Datetime("ms", "UTC")),
                "ip_address": pl.repeat(IP, height, eager=True),
            }
        )


def json_values(frame: pl.DataFrame) -> list[bytes]:
    """The events as the original writes them: this order, these blanks, all values strings."""
    fields = ", ".join(f'"{name}": "{{}}"' for name in frame.columns)
    columns = [pl.col(c).dt.epoch("ms") if c == "event_time" else pl.col(c) for c in frame.columns]
    made = frame.select(pl.format(fields, *columns).alias("fields")).select(
        pl.concat_str(pl.lit("{"), "fields", pl.lit("}"))
    )
    return made.to_series().cast(pl.Binary).to_list()


def expected(records: int, consumed: Mapping[int, int] | None = None) -> pl.DataFrame:
    """Views by campaign and window of the first `consumed[p]` events of each partition (None: of
    all): `campaign`, `start_ms`, `seen`.
    """
    parts = []
    for start in range(0, records, CHUNK):
        ads, kinds, _ = _drawn(start, records)
        number = np.arange(start, start + len(ads))
        view = kinds == EVENT_TYPES.index(VIEW)
        if consumed is not None:
            limit = np.array([consumed.get(p, 0) for p in range(PARTITIONS)])
            view &= number // PARTITIONS < limit[number % PARTITIONS]
        parts.append(counted(ads[view], _times(start, len(ads))[view]))
    return (
        pl.concat(parts).group_by("campaign", "start_ms").agg(pl.col("seen").sum())
        if parts
        else counted(np.empty(0, np.int64), np.empty(0, np.int64))
    )


def counted(ads: Ints, times_ms: Ints) -> pl.DataFrame:
    """Views by campaign and window, of the ads and event times of views."""
    views = pl.DataFrame({"campaign": CAMPAIGN_OF[ads], "time": times_ms})
    start = (pl.col("time") // WINDOW_MS * WINDOW_MS).alias("start_ms")
    found = views.group_by("campaign", start).agg(pl.len().cast(pl.Int64).alias("seen"))
    return found.with_columns(pl.Series("campaign", CAMPAIGN_IDS).gather(found["campaign"]))


def _times(start: int, height: int) -> Ints:
    times: Ints = START_MS + APART_MS * np.arange(start, start + height, dtype=np.int64)
    return times


def _drawn(start: int, records: int) -> tuple[Ints, Ints, np.random.Generator]:
    """Ads and kinds of the chunk at `start`, and the generator of its other fields."""
    draw = np.random.default_rng([SEED, start])
    height = min(CHUNK, records - start)
    return draw.integers(ADS, size=height), draw.integers(len(EVENT_TYPES), size=height), draw
