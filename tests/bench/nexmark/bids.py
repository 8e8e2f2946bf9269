"""Nexmark's bids: seeded, in columns, and the same ones on every machine.

After `BidGenerator` of nexmark/nexmark with its default configuration: of fifty events one is a new
person, three are new auctions and 46 are bids; every second bid goes to a hot auction, three of
four come from a hot bidder; prices are log-uniform. Only bids are made, since the queries measured
here read nothing else, but their times and ids are those they have among persons and auctions.

Event time moves forward at `EVENTS_A_S`, Nexmark's default of 10,000 events a second; a small topic
is stretched over `SPAN_MIN_S`, so that it has windows that end. The record key is the auction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.settings import Settings
from streams.runtime.topic import RecordType, Topic
from tests.bench.log import fill

PARTITIONS = 4
START_MS = 1_700_006_400_000 - 30_000
"""Half a minute before a midnight (UTC), for q17 counts by day."""
EVENTS_A_S = 10_000
SPAN_MIN_S = 60
WATERMARK_MS = 4_000
SIDE_ROWS = 10_000
SEED = 7

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EVENTS = PERSONS + AUCTIONS + BIDS
HOT_AUCTION_RATIO, HOT_BIDDER_RATIO, HOT_BATCH = 2, 4, 100
AUCTIONS_IN_FLIGHT, AUCTION_LEAD = 100, 10
PERSONS_ACTIVE, PERSON_LEAD = 1_000, 10
FIRST_AUCTION, FIRST_BIDDER = 1_000, 2_000  # the original adds 1,000 to the bidder twice
CHANNELS = 10_000
EXTRA_BYTES = (54, 82)
"""Range of the length of `extra`, with which a bid's nominal size is 100 bytes."""
_CHUNK = 100_000
_LETTERS = 1 << 20

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bid:
    """One bid."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


BID = RecordType(
    fullname="headrace.bench.Bid",
    avsc=json.dumps(
        {
            "type": "record",
            "name": "Bid",
            "namespace": "headrace.bench",
            "fields": [
                {"name": "auction", "type": "long"},
                {"name": "bidder", "type": "long"},
                {"name": "price", "type": "long"},
                {"name": "channel", "type": "string"},
                {"name": "url", "type": "string"},
                {"name": "date_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "extra", "type": "string"},
            ],
        },
        separators=(",", ":"),
    ),
    dtypes={
        "auction": pl.Int64,
        "bidder": pl.Int64,
        "price": pl.Int64,
        "channel": pl.String,
        "url": pl.String,
        "date_time": pl.Datetime("ms", "UTC"),
        "extra": pl.String,
    },
    row=Bid,
)


def topic(records: int) -> Topic:
    """The topic that holds the first `records` bids."""
    return Topic(
        name=f"bench.nexmark-bids-{records}",
        records=(BID,),
        key="auction",
        event_time="date_time",
        partitions=PARTITIONS,
        owner="bench",
        doc="Nexmark's bids for benchmarks.",
        out_of_orderness_ms=WATERMARK_MS,
    )


def ensure(settings: Settings, records: int) -> Topic:
    """The topic, filled; generates it unless it is there and whole."""
    wanted = topic(records)
    fill(settings, wanted, records, ((BID.name, frame) for frame in frames(records)))
    return wanted


def side_table() -> list[str]:
    """q13's side input: the value of key n is at place n. Nexmark's are the keys themselves; these
    differ in length, so that a wrong one shows in the sum of lengths.
    """
    return [f"{key}-{'x' * (key * 31 % 17)}" for key in range(SIDE_ROWS)]


def frames(records: int) -> Iterator[pl.DataFrame]:
    """The bids in order, some at a time."""
    letters, urls = _letters(), _urls()
    hot = [("Google", urls[-1]), ("Facebook", urls[-2]), ("Baidu", urls[-3]), ("Apple", urls[-4])]
    channels = [name for name, _ in hot] + [f"channel-{n}" for n in range(CHANNELS)]
    links = [url for _, url in hot] + urls[:CHANNELS]
    for start in range(0, records, _CHUNK):
        numbers, draw = _drawn(start, records)
        height = numbers.height
        channel = draw.integers(len(hot), size=height)
        cold = draw.integers(2, size=height) == 0
        channel[cold] = len(hot) + draw.integers(CHANNELS, size=int(cold.sum()))
        at = draw.integers(_LETTERS - EXTRA_BYTES[1], size=height).tolist()
        sizes = numbers["extra"].to_list()
        yield numbers.with_columns(
            pl.Series("channel", channels).gather(channel),
            pl.Series("url", links).gather(channel),
            pl.col("date_time").cast(pl.Datetime("ms", "UTC")),
            pl.Series("extra", [letters[a : a + n] for a, n in zip(at, sizes, strict=True)]),
        ).select(BID.columns)


def numbers(records: int) -> pl.DataFrame:
    """All bids without their strings: `extra` is its length, `date_time` milliseconds."""
    return pl.concat([_drawn(start, records)[0] for start in range(0, records, _CHUNK)])


def _drawn(start: int, records: int) -> tuple[pl.DataFrame, np.random.Generator]:
    """The numbers of the chunk at `start`, and the generator of its strings."""
    draw = np.random.default_rng([SEED, start])
    height = min(_CHUNK, records - start)
    epoch, place = np.divmod(np.arange(start, start + height), BIDS)
    event = epoch * EVENTS + PERSONS + AUCTIONS + place
    price = np.rint(10 ** (draw.random(height) * 6) * 100).astype(np.int64)
    made = {
        "auction": _auctions(epoch, draw),
        "bidder": _bidders(epoch, draw),
        "price": price,
        "date_time": START_MS + event * 1_000 // events_a_s(records),
        "extra": draw.integers(*EXTRA_BYTES, size=height),
    }
    return pl.DataFrame(made), draw


def events_a_s(records: int) -> int:
    """Events a second of event time, persons and auctions included."""
    return max(1, min(EVENTS_A_S, records * EVENTS // BIDS // SPAN_MIN_S))


def _auctions(epoch: Int64s, draw: np.random.Generator) -> Int64s:
    last = epoch * AUCTIONS + AUCTIONS - 1
    first = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
    some = first + draw.integers(last - first + 1 + AUCTION_LEAD)
    hot = draw.integers(HOT_AUCTION_RATIO, size=epoch.size) > 0
    return FIRST_AUCTION + np.where(hot, last // HOT_BATCH * HOT_BATCH, some)


def _bidders(epoch: Int64s, draw: np.random.Generator) -> Int64s:
    persons = epoch * PERSONS + 1
    active = np.minimum(persons, PERSONS_ACTIVE)
    some = persons - active + draw.integers(active + PERSON_LEAD)
    hot = draw.integers(HOT_BIDDER_RATIO, size=epoch.size) > 0
    return FIRST_BIDDER + np.where(hot, (persons - 1) // HOT_BATCH * HOT_BATCH + 1, some)


@cache
def _letters() -> str:
    draw = np.random.default_rng([SEED, 1])
    return (draw.integers(26, size=_LETTERS, dtype=np.uint8) + ord("a")).tobytes().decode()


@cache
def _urls() -> list[str]:
    """An address for every channel, then those of the four hot ones."""
    draw = np.random.default_rng([SEED, 2])
    letters = _letters()
    made = []
    for channel in range(CHANNELS + 4):
        parts = [letters[at : at + 4] for at in draw.integers(_LETTERS - 4, size=3)]
        url = f"https://www.nexmark.com/{'/'.join(parts)}/item.htm?query=1"
        named = channel < CHANNELS and draw.integers(10) > 0
        made.append(f"{url}&channel_id={channel * 2_654_435_761 % 2**31}" if named else url)
    return made
