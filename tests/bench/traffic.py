"""Events of the real systems for rebuilds, in topics of the benchmark's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from schemas.ads.events import AD_CLICKED, AD_IMPRESSED, EVENTS
from schemas.leaderboard.events import SCORE_SUBMITTED, SCORES
from streams import catalog
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Changes, ReadModel, Upsert
from tests.bench import clicks, rule
from tests.bench.clicks import START_MS
from tests.bench.log import fill
from tests.bench.shapes import BUCKET_ROWS
from tests.bench.shapes import EVENTS as CLICKS

SEED = 12
_CHUNK = 20_000
"""Rows of one record type behind each other: less event time than may come out of order."""
ROWS_A_MS = 10
USERS, CAMPAIGNS, ADS = 50_000, 500, 5_000
PLAYERS, BOARDS = 50_000, 20
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"

Frames = Iterator[tuple[str, pl.DataFrame]]


def ads(records: int) -> Frames:
    """Half impressions, half clicks."""
    for start, height, draw in _chunks(records):
        ad = draw.integers(ADS, size=height)
        shared = {
            "user_id": _names("u", draw.integers(USERS, size=height)),
            "campaign_id": _names("c", ad % CAMPAIGNS),
            "ad_id": _names("a", ad),
            "event_time": _times(start, height),
            "country": np.array(["US", "DE", "IN", "BR"])[draw.integers(4, size=height)],
        }
        identity = _names("e", np.arange(start, start + height))
        if start // _CHUNK % 2:
            click = {
                "click_id": identity,
                "impression_id": _names("e", np.arange(start - _CHUNK, start - _CHUNK + height)),
                **shared,
                "cost_micros": draw.integers(1_000_000, size=height),
                "user_agent": AGENT,
            }
            yield AD_CLICKED.name, pl.DataFrame(click)
        else:
            yield AD_IMPRESSED.name, pl.DataFrame({"impression_id": identity, **shared})


def scores(records: int) -> Frames:
    """Scores on a few boards, a third by each operator."""
    for start, height, draw in _chunks(records):
        score = {
            "score_id": _names("s", np.arange(start, start + height)),
            "board": _names("b", draw.integers(BOARDS, size=height)),
            "operator": np.array(["SUM", "BEST", "LAST"])[draw.integers(3, size=height)],
            "player_id": _names("p", draw.integers(PLAYERS, size=height)),
            "points": draw.integers(10_000, size=height),
            "event_time": _times(start, height),
        }
        yield SCORE_SUBMITTED.name, pl.DataFrame(score)


SOURCES = {EVENTS.name: ads, SCORES.name: scores}


class KeepClicks:
    """Every click as it is, by offset: what a store costs where the fold costs nothing."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        offset = pl.col(OFFSET)
        rows = batch.frame.with_columns(
            offset.alias("offset"), (offset // BUCKET_ROWS).alias("bucket")
        )
        changes = [Upsert(CLICKS, rows.select(*CLICKS.columns))] if rows.height else []
        return state, Outcome(changes, {Fate.APPLIED: rows.height})

    def provisional(self, state: None) -> list[Changes]:
        return []


def history(store: str, linger_ms: int = 0) -> Projection:
    """The clicks kept one by one in a store."""
    name = f"clicks-{store}"
    model = ReadModel(name, (CLICKS,))
    return Projection(name, clicks.topic(1), KeepClicks(), model, store, linger_ms=linger_ms)


OWN = {
    "clicks-windows": replace(rule.projection(clicks.topic(1), "redis"), name="clicks-windows"),
    "clicks-clickhouse": history("clickhouse", linger_ms=1_000),
    "clicks-cassandra": history("cassandra"),
    "clicks-s3": history("s3", linger_ms=1_000),
}
"""Read models of the benchmark's own, over its clicks."""


def double(name: str, records: int | str) -> Projection:
    """A read model of the catalogue or of `OWN`, under a name and over a topic of our own."""
    ours = f"bench-{name}-{records}"
    if name in OWN:
        model = ReadModel(ours, OWN[name].model.tables)
        return replace(OWN[name], name=ours, topic=clicks.topic(records), model=model)
    _, projection = catalog.projection(name)
    topic = replace(projection.topic, name=f"bench.{projection.topic.name}-{records}")
    model = ReadModel(ours, projection.model.tables)
    return replace(projection, name=ours, topic=topic, model=model)


def ensure(settings: Settings, name: str, records: int) -> None:
    """The topic of `double(name)`, filled."""
    if name in OWN:
        clicks.ensure(settings, records)
        return
    _, projection = catalog.projection(name)
    make = SOURCES[projection.topic.name]
    fill(settings, double(name, records).topic, records, make(records))


def _chunks(records: int) -> Iterator[tuple[int, int, np.random.Generator]]:
    for start in range(0, records, _CHUNK):
        yield start, min(_CHUNK, records - start), np.random.default_rng([SEED, start])


def _names(prefix: str, numbers: np.ndarray) -> pl.Series:
    return pl.select(pl.format(prefix + "-{}", pl.lit(pl.Series(numbers)))).to_series()


def _times(start: int, height: int) -> pl.Series:
    times = START_MS + np.arange(start, start + height) // ROWS_A_MS
    return pl.Series(times).cast(pl.Datetime("ms", "UTC"))
