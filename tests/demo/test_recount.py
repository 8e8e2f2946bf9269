"""The recount: its rules on cases worked out by hand, and against the real folds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import polars as pl
import pytest
from data import flights_of, impressions, many_flights, requests

from infra.demo import sources
from infra.demo.recount import Ads, Log, Scores, murmur2
from infra.demo.sources import RECORD, Traffic
from infra.demo.waves import old_repeats, runs, waves
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.ads import CountByWindow
from streams.catalog import projection
from streams.runtime.kafka import partition_of
from streams.runtime.testing import Harness

MINUTE = 60_000


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_as_kafkas_own_test_has_it(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % 2**32


def test_a_watermark_is_that_of_the_rows_before() -> None:
    log = Log()
    assert log.append("k", 100_000) < 0
    assert log.append("k", 50_000) == log.append("k", 60_000) == 95_000
    other = next(f"u{n}" for n in range(99) if partition_of(f"u{n}", 4) != partition_of("k", 4))
    assert log.append(other, 0) < 0
    assert log.slowest < 0


def clicks(*minutes_and_users: tuple[float, str], agent: str | None = None) -> pl.DataFrame:
    events = sources.from_access_log(
        requests(*["/adclick.php?c=A"] * len(minutes_and_users))
    ).events.with_columns(
        pl.Series("event_time", [int(m * MINUTE) for m, _ in minutes_and_users]).cast(
            pl.Datetime("ms", "UTC")
        ),
        pl.Series("user_id", [user for _, user in minutes_and_users]),
        pl.lit(agent, pl.String).alias("user_agent"),
    )
    return events.with_columns(pl.lit(False).alias("_repeat"))


def test_late_by_its_minute_and_not_by_its_time() -> None:
    """The watermark is 200 min. A minute that ended at 140 has had its hour, one of 141 has not."""
    reached = 200 + 5 / 60
    rows = clicks((reached, "u"), (139, "u"), (139.99, "u"), (140, "u"), (140.5, "u"))
    recount = Ads()
    assert recount.add(rows) == Counter(applied=3, late=2)
    assert recount.minutes["clicks"].sum() == 3
    assert Ads().add(clicks((reached - 0.001, "u"), (139, "u"))) == Counter(applied=2)


def test_a_cost_that_no_click_has_is_set_aside() -> None:
    rows = clicks((5, "u"), (5, "u"), (5, "u")).with_columns(
        pl.Series("cost_micros", [-1, 10**12, 10**12 + 1])
    )
    assert Ads().add(rows) == Counter(applied=1, quarantined=2)


def test_the_eleventh_click_in_a_minute_does_not_count() -> None:
    recount = Ads()
    assert recount.add(clicks(*[(5, "u")] * 12, (5, "v"), (6, "u"))) == Counter(
        applied=12, filtered=2
    )


def test_bots_do_not_count() -> None:
    assert Ads().add(clicks((5, "u"), agent="Googlebot/2.1")) == Counter(filtered=1)
    assert Ads().add(clicks((5, "u"), agent="Cubot phone")) == Counter(applied=1)
    assert Ads().add(clicks((5, "u"), agent="Abbott Browser")) == Counter(applied=1)


def test_weeks_begin_on_monday() -> None:
    recount = Scores()
    for wave in waves(sources.scores_from_flights(flights_of(("UA", 1, 0, 0, 0)))):
        recount.add(wave)
    starts = recount.periods.filter(pl.col("period") == "week")["start_ms"].unique()
    assert starts.cast(pl.Datetime("ms")).dt.to_string().to_list() == ["2012-12-31 00:00:00.000"]


def ads_traffic() -> list[Traffic]:
    bots = sources.from_access_log(requests(*["/adclick.php?c=A"] * 20, agent="x-bot"))
    return [
        sources.from_access_log(requests(*["/adclick.php?c=A"] * 30)),
        Traffic(
            "bots",
            bots.topic,
            bots.events.with_columns(pl.format("b{}", "click_id").alias("click_id")),
            "",
        ),
        sources.from_flights(many_flights(400)),
        sources.from_open_bandit(impressions(*[n % 4 == 0 for n in range(200)])),
    ]


def delivered(traffic: list[Traffic], scale: int) -> Iterator[pl.DataFrame]:
    for one in traffic:
        yield from waves(one, scale, repeats=True)
    for one in traffic:
        yield from old_repeats(one, scale)


def folded(
    agent: str, rows: Iterator[pl.DataFrame]
) -> tuple[dict[str, pl.DataFrame], Counter[str]]:
    """The same rows through the real fold, partition by partition; tables and fates."""
    _, found = projection(agent)
    store, fates = MemoryStore(), Counter[str]()
    all_rows = list(rows)
    for partition in range(found.topic.partitions):
        sink = MemorySink(found.model, store)
        harness = Harness(found, sink, partition=partition)
        for wave in all_rows:
            key = pl.col(found.topic.key)
            mine = wave.filter(
                key.map_elements(lambda k, p=partition: partition_of(k, 4) == p, pl.Boolean)  # type: ignore[misc]
            )
            for record, run in runs(mine) if mine.height else ():
                name = next(r.fullname for r in found.topic.records if r.name == record)
                harness.send(run, record=name)
        harness.run(cuts=[7, 100])
    sink = MemorySink(found.model, store)
    for position in sink.positions(1).values():
        fates.update(position.counts)
    tables = {
        t.name: pl.concat(sink.rows(1, t.name)) for t in found.model.tables if t.name != "bans"
    }
    return tables, fates


def same(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    return one.sort(pl.all()).equals(other.select(one.columns).sort(pl.all()))


@pytest.mark.parametrize("scale", [1, 3])
def test_ads_against_the_real_fold(scale: int) -> None:
    recount = Ads()
    for wave in delivered(ads_traffic(), scale):
        recount.add(wave)
    assert isinstance(projection("ads-windows")[1].fold, CountByWindow)
    tables, fates = folded("ads-windows", delivered(ads_traffic(), scale))
    assert fates == recount.fates
    assert {"applied", "late", "duplicate", "filtered"} <= set(recount.fates)
    for name, key in (
        ("minutes", ("campaign_id", "ad_id", "minute_ms")),
        ("hours", ("campaign_id", "hour_ms")),
    ):
        expected = getattr(recount, name)
        stored = (
            tables[name]
            .group_by(key)
            .agg(pl.col(c).sum() for c in expected.columns if c not in key)
        )
        assert same(expected, stored)


@pytest.mark.parametrize("scale", [1, 3])
def test_scores_against_the_real_fold(scale: int) -> None:
    traffic = [sources.scores_from_flights(many_flights(400))]
    recount = Scores()
    for wave in delivered(traffic, scale):
        recount.add(wave)
    tables, fates = folded("leaderboard", delivered(traffic, scale))
    assert fates == recount.fates
    assert same(recount.boards, tables["all"])
    assert same(recount.periods, tables["periods"])


def test_repeats_change_no_count() -> None:
    plain, repeated = Ads(), Ads()
    for traffic in ads_traffic():
        for wave in waves(traffic):
            plain.add(wave)
    for wave in delivered(ads_traffic(), 1):
        repeated.add(wave)
    assert same(plain.minutes, repeated.minutes)
    assert same(plain.hours, repeated.hours)
    assert same(plain.too_late, repeated.too_late)
    assert plain.too_late["clicks"].sum() == plain.fates["late"]
    assert repeated.kinds["rows"].sum() > plain.kinds["rows"].sum()
    assert RECORD in ads_traffic()[0].events.columns
