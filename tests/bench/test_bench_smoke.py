"""The benchmarks run and count right, at tiny sizes; no figure is judged."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from streams.runtime.settings import Settings
from tests.bench import clicks, decider, lane, paced, scale, traffic
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
    made = [clicks.topic(RECORDS), traffic.double("ads-windows", RECORDS).topic]
    models = ("bench-lane-redis", f"bench-ads-windows-{RECORDS}")
    yield given
    drop_topics(given, made)
    for model in models:
        drop_read_model(given, model)


@pytest.mark.stack
@pytest.mark.parametrize("name", ["lane", "memory", "raw", "faust"])
def test_every_contender_counts_right(settings: Settings, name: str) -> None:
    clicks.ensure(settings, RECORDS)
    contender = lane.contenders(settings, RECORDS)[name]
    assert once(contender).events == RECORDS


@pytest.mark.stack
def test_a_rebuild_folds_every_record(settings: Settings) -> None:
    traffic.ensure(settings, "ads-windows", RECORDS)
    one = run(python("rebuild", "ads-windows", RECORDS))
    assert (one.events, one.finish.count) == (RECORDS, RECORDS)


@pytest.mark.stack
def test_a_decider_decides_every_command() -> None:
    given, one = Settings.read(), decider.decider(RECORDS)
    decider.fill(given, one, RECORDS)
    done = run(python("decider", RECORDS))
    drop_topics(given, [one.commands, one.events])
    assert (done.events, done.finish.count) == (RECORDS, RECORDS)


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


def test_a_restored_state_is_the_one_that_was_kept() -> None:
    assert decider.restore(1_000)["keys"] == 1_100


def test_wrong_totals_are_an_error() -> None:
    with pytest.raises(WrongTotals, match="the generator made"):
        lane.check("a contender", _run_with(count=RECORDS - 1), RECORDS)


def _run_with(count: int) -> Run:
    consumed = dict.fromkeys(range(clicks.PARTITIONS), RECORDS)
    cost = clicks.totals(RECORDS).cost_micros
    finish = Finish(1.0, 1.0, consumed, count, cost)
    return Run(finish, 1.0, None, 0.0, 0.0)
