"""From public data to events: pure, one function a data set.

Every function returns a frame in the order of delivery with the fields of the topic's records
and `_record`, the name of the record type a row becomes (fields of other types are null).

Read models keep 400 days of event time, and the sets are from 2009, 2013 and 2019: the first and
the last are moved by whole weeks to lie directly before and after the flights of 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import polars as pl

from connectors.datasets.open_bandit import FEATURES
from schemas.ads.events import AD_CLICKED, AD_IMPRESSED
from schemas.ads.events import EVENTS as AD_EVENTS
from schemas.leaderboard.events import SCORE_SUBMITTED, SCORES
from streams.runtime.topic import Topic

RECORD = "_record"
LOG_MOVED = timedelta(weeks=192)
"""The access log of 2009-04-22 is told as 2012-12-26."""
BANDIT_MOVED = timedelta(weeks=-307)
"""The impressions of 2019-11-24 to 30 are told as 2014-01-05 to 11."""
CLICK_MICROS = 250_000
"""Price of a click where the data has none."""
MICROS_PER_MILE = 1_000
POINTS_ON_TIME = 60


@dataclass(frozen=True)
class Traffic:
    """Events of one data set for one topic, in the order of delivery."""

    name: str
    topic: Topic
    events: pl.DataFrame
    about: str


def from_access_log(requests: pl.DataFrame) -> Traffic:
    """Requests for `/adclick.php` → clicks: campaign by the `c` parameter, user by client host."""
    clicks = requests.filter(pl.col("path") == "/adclick.php").with_columns(
        pl.col("query").str.extract(r"(?:^|&)c=([^&]+)").alias("code")
    )
    events = _ads(
        clicks.filter(pl.col("code").is_not_null()),
        click_id=pl.format("log-{}", "line"),
        user_id=pl.col("host"),
        campaign_id=pl.lit("access-log"),
        ad_id=pl.col("code"),
        event_time=pl.col("time") + LOG_MOVED,
        cost_micros=pl.lit(CLICK_MICROS),
        user_agent=pl.col("agent"),
    ).with_columns(pl.lit(AD_CLICKED.name).alias(RECORD))
    about = f"{events.height:,} ad clicks among {requests.height:,} requests of a web server"
    return Traffic("access-log", AD_EVENTS, events, about)


def from_flights(flights: pl.DataFrame) -> Traffic:
    """Flights → one click each, in the order the aircraft really left.

    Event time is the scheduled departure, so a delayed flight is an event out of order. Flights
    that never left have no place in that order and are left out.
    """
    flown = departed(flights)
    events = _ads(
        flown,
        click_id=flight_id(),
        user_id=pl.coalesce("tailnum", pl.format("{}{}", "carrier", "flight")),
        campaign_id=pl.col("carrier"),
        ad_id=pl.format("{}-{}", "origin", "dest"),
        event_time=pl.col("scheduled"),
        country=pl.lit("US"),
        cost_micros=pl.col("distance") * MICROS_PER_MILE,
    ).with_columns(pl.lit(AD_CLICKED.name).alias(RECORD))
    cancelled = flights.height - flown.height
    about = f"{flown.height:,} departures ({cancelled:,} cancelled flights are left out)"
    return Traffic("flights", AD_EVENTS, events, about)


def from_open_bandit(impressions: pl.DataFrame) -> Traffic:
    """Rows → impressions, each followed by its click if there was one.

    Users are their four hashed features: who looks alike is one user.
    """
    name = pl.col("campaign").str.replace("/", "-")
    user = pl.format("u-{}-{}-{}-{}", *(pl.col(f).str.slice(0, 6) for f in FEATURES))
    shown = _ads(
        impressions,
        click_id=pl.when(pl.col("click") == 1).then(pl.format("obd-{}-{}-click", name, "row")),
        impression_id=pl.format("obd-{}-{}", name, "row"),
        user_id=user,
        campaign_id=name,
        ad_id=pl.format("item-{}", "item_id"),
        event_time=pl.col("timestamp").dt.cast_time_unit("ms") + BANDIT_MOVED,
        country=pl.lit("JP"),
        cost_micros=pl.lit(CLICK_MICROS),
    ).with_row_index("_at")
    clicked = shown.filter(pl.col("click_id").is_not_null())
    events = (
        pl.concat(
            [
                shown.with_columns(pl.lit(AD_IMPRESSED.name).alias(RECORD), click_id=None),
                clicked.with_columns(pl.lit(AD_CLICKED.name).alias(RECORD)),
            ],
            how="vertical_relaxed",
        )
        .sort("_at", maintain_order=True)
        .drop("_at")
    )
    about = f"{shown.height:,} impressions with {clicked.height:,} clicks"
    return Traffic("open-bandit", AD_EVENTS, events, about)


def scores_from_flights(flights: pl.DataFrame) -> Traffic:
    """Arrivals → points for being on time, 60 minus the minutes of delay and never negative.

    Two scores an arrival: the airline on the board `airlines` (SUM), and the flight on its
    destination's, such as `airport-LAX` (BEST). Event time is the landing: actual departure and
    time in the air.
    """
    landed = departed(flights).filter(pl.col("arr_delay").is_not_null())
    flight = pl.format("{}{}", "carrier", "flight")
    boards = (
        ("airline", pl.lit("airlines"), "SUM", pl.col("carrier")),
        ("airport", pl.format("airport-{}", "dest"), "BEST", flight),
    )
    at_landing = pl.col("left") + pl.duration(minutes="air_time")
    points = pl.max_horizontal(pl.lit(0), POINTS_ON_TIME - pl.col("arr_delay"))
    scores = [
        landed.with_row_index("_at").select(
            "_at",
            pl.format("{}-{}", flight_id(), pl.lit(kind)).alias("score_id"),
            board.alias("board"),
            pl.lit(operator).alias("operator"),
            player.alias("player_id"),
            points.cast(pl.Int64).alias("points"),
            at_landing.alias("event_time"),
        )
        for kind, board, operator, player in boards
    ]
    events = pl.concat(scores).sort("_at", maintain_order=True).drop("_at")
    events = events.with_columns(pl.lit(SCORE_SUBMITTED.name).alias(RECORD))
    about = f"{landed.height:,} arrivals, two scores each"
    return Traffic("punctuality", SCORES, events, about)


def departed(flights: pl.DataFrame) -> pl.DataFrame:
    """The flights that left, in the order they did, with `left`, the time."""
    left = pl.col("scheduled") + pl.duration(minutes="dep_delay")
    flown = flights.filter(pl.col("dep_delay").is_not_null()).with_columns(left.alias("left"))
    return flown.sort("left", "scheduled", "carrier", "flight", "origin")


def flight_id() -> pl.Expr:
    """A name for one flight on one day: no carrier uses a number twice from one airport."""
    day = pl.col("scheduled").dt.strftime("%Y%m%d%H%M")
    return pl.format("{}{}-{}-{}", "carrier", "flight", "origin", day)


def _ads(rows: pl.DataFrame, **fields: pl.Expr) -> pl.DataFrame:
    """The fields of a click, by expression, else their defaults."""
    defaults = {
        "impression_id": pl.lit(None, pl.String),
        "country": pl.lit("ZZ"),
        "user_agent": pl.lit(None, pl.String),
    }
    made = {**defaults, **fields}
    types = AD_CLICKED.dtypes
    return rows.select(made[name].cast(types[name]).alias(name) for name in AD_CLICKED.columns)
