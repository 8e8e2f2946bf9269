"""The benchmarks run and count right, at tiny sizes; no figure is judged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import polars as pl
import pytest

from streams.runtime.settings import Settings
from tests.bench import clicks, ids, lane, paced, restart, scale, sinks, traffic, transfers
from tests.bench.contenders.finish import Finish
from tests.bench.measure import Run, python, run
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.turns import WrongTotals, once

RECORDS = 2_500


def test_totals_are_those_of_the_records() -> None:
    made = pl.concat(clicks.frames(RECORDS))
    whole = clicks.Totals(RECORDS, int(made["cost_micros"].sum()))
    assert clicks.totals(RECORDS) == whole
    assert made["event_time"].is_sorted()
    assert made["click_id"].n_unique() == RECORDS
    parts = [clicks.totals(RECORDS, {p: RECORDS}) for p in range(clicks.PARTITIONS)]
    assert sum(part.count for part in parts) == RECORDS
    assert sum(part.cost_micros for part in parts) == whole.cost_micros
    some = clicks.totals(RECORDS, {0: 3})
    assert some.count == 3
    assert 0 < some.cost_micros < parts[0].cost_micros


@pytest.fixture
def settings() -> Iterator[Settings]:
    given = Settings.read()
    yield given
    drop_topics(given, [traffic.double("ads-windows", RECORDS).topic])
    drop_read_model(given, f"bench-ads-windows-{RECORDS}")


@pytest.mark.stack
def test_a_rebuild_folds_every_record(settings: Settings) -> None:
    traffic.ensure(settings, "ads-windows", RECORDS)
    one = run(python("rebuild", "ads-windows", RECORDS))
    assert (one.events, one.finish.count) == (RECORDS, RECORDS)


@pytest.mark.stack
@pytest.mark.parametrize("name", sinks.contenders(RECORDS))
def test_every_way_into_a_store_stores_what_it_was_given(name: str) -> None:
    assert once(sinks.contenders(RECORDS)[name]).finish.count


@pytest.mark.stack
def test_a_decider_decides_every_command() -> None:
    given, one = Settings.read(), transfers.decider(RECORDS)
    transfers.fill(given, one, transfers.commands(RECORDS))
    done = run(python("decide", RECORDS))
    drop_topics(given, [one.commands, one.events])
    assert (done.events, done.finish.count) == (RECORDS, RECORDS)


@pytest.mark.stack
def test_a_decider_comes_back_with_all_its_state() -> None:
    back = restart.measure(Settings.read(), 1, RECORDS, 500)
    assert back["snapshot_bytes"] > 0
    assert back["folded_after_it"] <= 500, "what the snapshot holds is not folded again"


@pytest.mark.stack
def test_two_workers_count_right() -> None:
    given = Settings.read()
    one = scale.folded(given, 2, RECORDS)  # raises where the totals are others
    drop_topics(given, [scale.topic()])
    drop_read_model(given, scale.NAME)
    assert one.cpu_s > 0


@pytest.mark.stack
def test_a_paced_event_is_stored_after_it_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "SECONDS", 1.0)
    monkeypatch.setattr(paced, "WARM_UP_S", 0.5)
    given = Settings.read()
    found = paced.paced(given, 500)
    drop_read_model(given, paced.NAME)
    assert 0 < found["p50"] <= found["p99"] <= found["max"]


def test_every_way_to_make_ids_makes_them() -> None:
    made = asyncio.run(ids._alone(2_000))
    assert len(made) == 7
    assert all(one["ids_per_s"] > 0 for one in made.values())


def test_wrong_totals_are_an_error() -> None:
    with pytest.raises(WrongTotals, match="the generator made"):
        lane.check("a contender", _run_with(count=RECORDS - 1), RECORDS)


def _run_with(count: int) -> Run:
    consumed = dict.fromkeys(range(clicks.PARTITIONS), RECORDS)
    cost = clicks.totals(RECORDS).cost_micros
    finish = Finish(1.0, 1.0, consumed, count, cost)
    return Run(finish, 1.0, None, 0.0, 0.0)
