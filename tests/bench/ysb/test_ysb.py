"""The Yahoo benchmark: its events, its check, and every engine at a tiny size; no figure judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from streams.runtime.json import JsonDecoder
from streams.runtime.settings import Settings
from tests.bench.peers import java
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.turns import WrongTotals, once
from tests.bench.ysb import crash, events, latency, load, pace, throughput
from tests.bench.ysb.check import HEADRACE, compare, model
from tests.bench.ysb.engines import TITLES, Engines

RECORDS = 4_000
SLOW_RECORDS = 60_000


def test_events_are_the_same_every_time_and_as_the_original_writes_them() -> None:
    (made,), (again,) = events.frames(RECORDS), events.frames(RECORDS)
    assert made.equals(again)
    values = events.json_values(made)
    first = json.loads(values[0])
    assert list(first) == list(events.AD_EVENT.columns)
    assert first["event_time"] == str(events.START_MS)
    assert first["ip_address"] == "1.2.3.4"
    assert values[0].decode() == json.dumps(first)
    assert made["user_id"].n_unique() == made["page_id"].n_unique() == RECORDS
    assert set(made["ad_id"]) <= set(events.AD_IDS)
    steps = made["event_time"].dt.epoch("ms").diff().drop_nulls().unique()
    assert steps.to_list() == [events.APART_MS]


def test_the_lane_reads_the_json_as_the_columns_it_was_made_of() -> None:
    (made,) = events.frames(RECORDS)
    decoded = JsonDecoder(events.topic("json", "any")).decode(events.json_values(made))
    assert not decoded.dead
    assert decoded.frames[events.AD_EVENT.fullname].drop("_row").equals(made)


def test_expected_counts_are_those_of_the_events() -> None:
    (made,) = events.frames(RECORDS)
    campaigns = dict(zip(events.AD_IDS, events.CAMPAIGN_OF.tolist(), strict=True))
    views = made.filter(pl.col("event_type") == "view")
    by_hand: dict[tuple[str, int], int] = {}
    for ad, at in zip(views["ad_id"], views["event_time"].dt.epoch("ms"), strict=True):
        key = events.CAMPAIGN_IDS[campaigns[ad]], at - at % events.WINDOW_MS
        by_hand[key] = by_hand.get(key, 0) + 1
    found = events.expected(RECORDS)
    rows = zip(found["campaign"], found["start_ms"], found["seen"], strict=True)
    assert {(campaign, start): seen for campaign, start, seen in rows} == by_hand
    parts = [events.expected(RECORDS, {p: RECORDS})["seen"].sum() for p in range(4)]
    assert sum(parts) == views.height
    assert events.expected(RECORDS, {})["seen"].sum() == 0


def test_paced_events_are_what_is_expected_of_them() -> None:
    one = pace.Phase(1_000, 3_000, 1.0)
    phases = [one, pace.Phase(20_000, 500, 2.0, first=one.events)]
    pool = pace.heads() * 2
    rows = []
    for phase in phases:
        for value in pace._values(pool, phase, phase.times_ms(), 0, phase.events):
            event = json.loads(value)
            if event["event_type"] == "view":
                rows.append((events.AD_IDS.index(event["ad_id"]), int(event["event_time"])))
    ads, times = (np.array(column) for column in zip(*rows, strict=True))
    assert compare("by hand", events.counted(ads, times), pace.expected(phases)) > 0
    assert pace.heads()[:3] == pool[:3]


@pytest.mark.parametrize(
    "wrong",
    [
        pl.when(pl.int_range(pl.len()) == 7).then(pl.col("seen") + 1).otherwise("seen"),
        pl.when(pl.int_range(pl.len()) == 0).then(0).otherwise("seen"),
    ],
)
def test_one_wrong_count_fails_the_check(wrong: pl.Expr) -> None:
    wanted = events.expected(RECORDS)
    assert compare("right", wanted.sample(fraction=1.0, shuffle=True), wanted) == wanted.height
    with pytest.raises(WrongTotals, match=r"1 of .* counts are wrong"):
        compare("wrong", wanted.with_columns(wrong.alias("seen")), wanted)


def test_a_count_that_nobody_made_and_one_that_is_missing_fail_the_check() -> None:
    wanted = events.expected(RECORDS)
    with pytest.raises(WrongTotals, match=r"1 of .* counts are wrong"):
        compare("one too few", wanted.head(-1), wanted)
    with pytest.raises(WrongTotals, match=r"1 of .* counts are wrong"):
        compare("one too many", wanted, wanted.head(-1))


def test_a_distribution_has_its_ends_and_is_in_order() -> None:
    points = latency.cdf([3.0, 1.0, 2.0])
    assert (points["samples"], points["p0"], points["p50"], points["p100"]) == (3, 1.0, 2.0, 3.0)
    assert latency.cdf([]) == {"samples": 0}


@pytest.fixture
def settings() -> Iterator[Settings]:
    given = Settings.read()
    yield given
    sizes = [(v, n) for v in events.VARIANTS for n in (RECORDS, SLOW_RECORDS)]
    drop_topics(given, [events.topic(variant, str(size)) for variant, size in sizes])
    for engine in TITLES:
        for variant in events.VARIANTS:
            drop_read_model(given, model(engine, variant))


ENGINES = [
    *((engine, variant) for engine in throughput.PYTHON for variant in events.VARIANTS),
    *(("flink", variant) for variant in events.VARIANTS),
    ("streams", "avro"),
    ("streams-repartition", "json"),
]


@pytest.mark.stack
@pytest.mark.parametrize(("engine", "variant"), ENGINES)
def test_every_engine_counts_right(
    settings: Settings, engine: str, variant: events.Variant, tmp_path: Path
) -> None:
    if engine not in throughput.PYTHON and (why := java.missing()):
        pytest.skip(why)
    load.ensure(settings, variant, RECORDS)
    made = throughput.contenders(settings, Engines(settings, tmp_path), variant, RECORDS, [engine])
    assert once(made[engine]).events == RECORDS


@pytest.mark.stack
def test_headrace_counts_right_after_kill_9(settings: Settings, tmp_path: Path) -> None:
    load.ensure(settings, "json", SLOW_RECORDS)
    wanted = events.expected(SLOW_RECORDS)
    done = crash.headrace(settings, Engines(settings, tmp_path), "json", SLOW_RECORDS, wanted)
    assert done["counts_equal"] == wanted.height


@pytest.mark.stack
def test_latencies_of_headrace_are_measured_and_its_counts_are_right(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency, "WARM_UP_S", 1.0)
    monkeypatch.setattr(latency, "PAUSE_MS", 100)
    monkeypatch.setattr(latency, "LEAD_MS", 200)
    done = latency.measure(settings, Engines(settings, tmp_path), HEADRACE, 2_000, 1.0)
    assert done["counts"] == "equal to the generator's"
    assert all(one["visible_ms"]["samples"] for one in done["loads"])
