"""From data sets to events, and their order of delivery."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from data import START, flights_of, impressions, many_flights, requests

from connectors.encode import Encoder
from infra.demo import sources
from infra.demo.sources import RECORD, Traffic
from infra.demo.waves import REPEAT, REPEAT_EVERY, old_repeats, runs, waves
from sinks import ads as ads_store


def test_flights_come_in_the_order_they_left() -> None:
    given = flights_of(
        ("UA", 1, 0, 90, 80), ("B6", 2, 30, 0, -5), ("B6", 13, 60, None, None), ("UA", 4, 61, -1, 0)
    )
    events = sources.from_flights(given).events
    assert events["user_id"].to_list() == ["N2", "N4", "N1"]
    assert events["event_time"].to_list() == [START + timedelta(minutes=m) for m in (30, 61, 0)]
    assert events["click_id"][0] == "B62-JFK-201301011030"
    assert set(events["campaign_id"]) == {"UA", "B6"}
    assert set(events["ad_id"]) == {"JFK-LAX"}
    assert set(events["cost_micros"]) == {2_475_000}


def test_a_flight_without_an_aircraft_is_known_by_its_number() -> None:
    assert sources.from_flights(flights_of(("UA", 13, 0, 0, 0))).events["user_id"][0] == "UA13"


def test_points_for_arrivals_on_time() -> None:
    given = flights_of(("UA", 1, 0, 5, -20), ("UA", 2, 1, 5, 400), ("UA", 3, 2, 5, None))
    events = sources.scores_from_flights(given).events
    rows = events.select("board", "operator", "player_id", "points").rows()
    assert rows == [
        ("airlines", "SUM", "UA", 80),
        ("airport-LAX", "BEST", "UA1", 80),
        ("airlines", "SUM", "UA", 0),
        ("airport-LAX", "BEST", "UA2", 0),
    ]
    assert events["event_time"][0] == START + timedelta(minutes=5 + 300)


def test_a_click_follows_its_impression() -> None:
    events = sources.from_open_bandit(impressions(0, 1, 0)).events
    assert events[RECORD].to_list() == ["AdImpressed", "AdImpressed", "AdClicked", "AdImpressed"]
    click = events.row(2, named=True)
    assert click["click_id"] == "obd-random-all-1-click"
    assert click["impression_id"] == events["impression_id"][1] == "obd-random-all-1"
    assert click["user_id"] == events["user_id"][1]


def test_ad_clicks_of_a_log() -> None:
    given = requests("/adclick.php?c=A1", "/adclick.php", "/other?c=A1", "/adclick.php?x=1&c=B2")
    events = sources.from_access_log(given).events
    assert events["ad_id"].to_list() == ["A1", "B2"]
    assert set(events["user_agent"]) == {"Mozilla/5.0"}


def every_source() -> list[Traffic]:
    return [
        sources.from_access_log(requests(*["/adclick.php?c=A"] * 45)),
        sources.from_flights(many_flights(300)),
        sources.from_open_bandit(impressions(*[n % 4 == 0 for n in range(100)])),
        sources.scores_from_flights(many_flights(300)),
    ]


def test_sets_lie_within_what_read_models_keep() -> None:
    """All of event time, from the log of 2009 to the impressions of 2019, in 400 days."""
    first = sources.from_access_log(requests("/adclick.php?c=A")).events["event_time"].min()
    last = sources.from_open_bandit(impressions(0)).events["event_time"].max()
    assert first is not None
    assert last + timedelta(days=7) - first < timedelta(days=400)  # type: ignore[operator]
    assert first.year == 2012  # type: ignore[union-attr]
    assert last.year == 2014  # type: ignore[union-attr]
    assert ads_store.MINUTES.time == "hour_ms"


@pytest.mark.parametrize("traffic", every_source(), ids=lambda t: t.name)
@pytest.mark.parametrize("scale", [1, 3])
def test_every_row_can_be_written_and_ids_are_unique(traffic: Traffic, scale: int) -> None:
    encoder = Encoder(traffic.topic, {r.fullname: 1 for r in traffic.topic.records})
    name = "score_id" if "score_id" in traffic.events.columns else "click_id"
    ids: list[str] = []
    for wave in waves(traffic, scale):
        ids += wave[name].drop_nulls().to_list()
        for record, rows in runs(wave):
            for row in rows.iter_rows(named=True):
                encoder.encode(record, row)
    assert len(ids) == len(set(ids)) == scale * traffic.events[name].drop_nulls().len()


@pytest.mark.parametrize("traffic", every_source(), ids=lambda t: t.name)
@pytest.mark.parametrize("scale", [1, 3])
def test_repeats_follow_their_originals(traffic: Traffic, scale: int) -> None:
    plain = pl.concat(waves(traffic, scale))
    with_repeats = pl.concat(waves(traffic, scale, repeats=True))
    assert with_repeats.filter(~pl.col(REPEAT)).equals(plain)
    again = with_repeats.filter(REPEAT)
    clicks = plain.filter(pl.col(RECORD) != "AdImpressed").height
    assert again.height == -(-clicks // REPEAT_EVERY)
    assert again.equals(pl.concat(old_repeats(traffic, scale)))
    content = pl.struct(pl.exclude(REPEAT, "_at"))
    numbered = with_repeats.with_row_index("_at").with_columns(content.rank("dense").alias("same"))
    first = numbered.group_by("same").agg(pl.col(REPEAT).first(), pl.len())
    assert not first[REPEAT].any()
    assert first["len"].sum() == with_repeats.height


def test_copies_are_other_users_at_the_same_minute() -> None:
    traffic = sources.from_flights(many_flights(50))
    wave = pl.concat(waves(traffic, 3))
    assert wave["user_id"].n_unique() == 3 * traffic.events["user_id"].n_unique()
    minute = pl.col("event_time").dt.truncate("1m")
    counts = wave.group_by("campaign_id", "ad_id", minute).len()["len"]
    single = traffic.events.group_by("campaign_id", "ad_id", minute).len()["len"]
    assert sorted(counts) == [3 * n for n in sorted(single)]


def test_runs_give_the_rows_back_in_order() -> None:
    wave = pl.concat(waves(sources.from_open_bandit(impressions(1, 0, 0, 1, 1))))
    kinds = [name for name, rows in runs(wave) for _ in range(rows.height)]
    assert kinds == wave[RECORD].to_list()
