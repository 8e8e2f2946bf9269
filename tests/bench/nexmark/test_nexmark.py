"""Nexmark: the bids, the folds against the oracle, every engine once at a tiny size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime import kafka
from streams.runtime.settings import Settings
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.bench.contenders.finish import Finish
from tests.bench.measure import Run
from tests.bench.nexmark import bids, compare, oracle, peers, queries
from tests.bench.nexmark.discard import DiscardSink
from tests.bench.peers import java
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.turns import WrongTotals, once

RECORDS = 3_000
STORED = ("q5", "q7", "q11", "q17")


@pytest.fixture(scope="module")
def made() -> pl.DataFrame:
    return pl.concat(bids.frames(RECORDS))


@pytest.fixture(scope="module")
def parts(made: pl.DataFrame) -> list[pl.DataFrame]:
    partition = [kafka.partition_of(str(a), bids.PARTITIONS) for a in made["auction"].to_list()]
    return (
        made.with_columns(_p=pl.Series(partition))
        .sort("_p", maintain_order=True)
        .partition_by("_p", include_key=False)
    )


def test_bids_are_the_same_every_time_and_as_nexmark_has_them() -> None:
    records = 120_000
    made = pl.concat(bids.frames(records))
    assert made.equals(pl.concat(bids.frames(records)))
    strings = made.with_columns(
        pl.col("date_time").cast(pl.Int64), pl.col("extra").str.len_bytes().cast(pl.Int64)
    )
    assert strings.select(bids.numbers(records).columns).equals(bids.numbers(records))
    assert made["date_time"].is_sorted()
    assert made["date_time"].dt.date().n_unique() == 2
    assert made["price"].is_between(100, 100_000_000).all()
    hot = made.select(((pl.col("auction") - bids.FIRST_AUCTION) % bids.HOT_BATCH == 0).mean())
    assert hot.item() == pytest.approx(1 / bids.HOT_AUCTION_RATIO, abs=0.02)
    hot = made.select(((pl.col("bidder") - bids.FIRST_BIDDER) % bids.HOT_BATCH == 1).mean())
    assert hot.item() == pytest.approx(1 - 1 / bids.HOT_BIDDER_RATIO, abs=0.02)
    extra = made.select(pl.col("extra").str.len_bytes().mean()).item()
    assert 32 + extra == pytest.approx(100, abs=2)


def test_event_time_has_nexmarks_rate_where_there_are_bids_enough() -> None:
    assert bids.events_a_s(3_000_000) == bids.EVENTS_A_S
    span_ms = bids.numbers(RECORDS)["date_time"][-1] - bids.START_MS
    assert span_ms == pytest.approx(bids.SPAN_MIN_S * 1_000, rel=0.05)


def test_side_values_differ_in_length() -> None:
    lengths = {len(value) for value in bids.side_table()}
    assert len(bids.side_table()) == bids.SIDE_ROWS
    assert len(lengths) > 10


@settings(deadline=None, max_examples=12)
@given(name=st.sampled_from(STORED), cuts=st.lists(st.integers(1, 900), max_size=12))
def test_stored_rows_answer_as_the_oracle_does_for_every_cut(
    made: pl.DataFrame, parts: list[pl.DataFrame], name: str, cuts: list[int]
) -> None:
    query = queries.QUERIES[name]()
    numbers = bids.numbers(RECORDS)
    until_ms = oracle.closed_ms(numbers)
    stored = _fold(name, query, parts, cuts)
    found = oracle.sums(queries.answer(query, stored, until_ms))
    assert found == oracle.expected(name, numbers, until_ms)
    assert found["rows"] > 0


def _fold(
    name: str, query: queries.Query, parts: list[pl.DataFrame], cuts: list[int]
) -> pl.DataFrame:
    folded = queries.projection(name, query, bids.topic(RECORDS))
    sink = MemorySink(folded.model, MemoryStore())
    for partition, rows in enumerate(parts):
        harness = Harness(folded, sink, partition)
        harness.send(rows)
        harness.run(cuts)
        assert harness.counts.get("late", 0) == 0
    return pl.concat(sink.rows(1, query.table.name))


@pytest.mark.parametrize("name", STORED)
def test_a_crash_or_other_borders_change_nothing_that_is_stored(
    parts: list[pl.DataFrame], name: str
) -> None:
    folded = queries.projection(name, queries.QUERIES[name](), bids.topic(RECORDS))
    disturbed = assert_replay_deterministic(
        folded,
        parts[0].head(400).to_dicts(),
        seed=5,
        open_sink=lambda model: MemorySink(model, MemoryStore()),
        batch_max=60,
    )
    assert disturbed.crashes


@pytest.mark.parametrize("name", ["q0", "q13"])
def test_discarded_rows_add_up_to_the_oracles(
    made: pl.DataFrame, parts: list[pl.DataFrame], name: str
) -> None:
    query = queries.QUERIES[name]()
    folded = queries.projection(name, query, bids.topic(RECORDS))
    sink = DiscardSink(folded.model)
    for partition, rows in enumerate(parts):
        harness = Harness(folded, sink, partition)
        harness.send(rows)
        harness.run([10, 300])
    assert sink.sums == oracle.expected(name, bids.numbers(RECORDS))


def test_windows_of_a_clock_add_up(parts: list[pl.DataFrame]) -> None:
    clock = count(bids.START_MS, 4_000)
    query = queries.query_12(lambda: next(clock))
    stored = _fold("q12", query, parts, [200] * 5)
    answer = oracle.sums(queries.answer(query, stored, 0))
    assert oracle.agrees(answer, oracle.expected("q12", bids.numbers(RECORDS)))
    assert stored["start_ms"].n_unique() > 1


def test_what_is_wrong_is_an_error() -> None:
    wanted = oracle.expected("q0", bids.numbers(RECORDS))
    check = compare.check

    def run(sums: dict[str, int], consumed: int = RECORDS, dropped: int = 0) -> Run:
        finish = Finish(1.0, 1.0, {0: consumed}, dropped=dropped, sums=sums)
        return Run(finish, 1.0, None, 0.0, 0.0)

    check("an engine", wanted, RECORDS, run(wanted))
    for wrong in (
        run({**wanted, "price": 1}),
        run({}),
        run(wanted, consumed=RECORDS - 1),
        run(wanted, dropped=1),
    ):
        with pytest.raises(WrongTotals, match="an engine"):
            check("an engine", wanted, RECORDS, wrong)


def test_where_a_peer_wins_is_said() -> None:
    ours = {"title": "q0 Headrace", "events_per_s": 2.0, "steady_events_per_s": None}
    theirs = {"title": "q0 other", "events_per_s": 3.0, "steady_events_per_s": 1.0}
    found = {
        "q0": {
            "contenders": {
                "headrace": {**ours, "cpu_s_per_million": 1.0},
                "flink": {**theirs, "cpu_s_per_million": 2.0},
            }
        }
    }
    assert list(compare.wins(found)) == ["q0 other: 3.00 events/s from cold, Headrace 2.00"]


def test_the_slower_parallelism_leaves() -> None:
    def run(seconds: float) -> Run:
        return Run(Finish(seconds, 1.0, {0: 10}), 1.0, None, 0.0, 0.0)

    assert compare._slower({"headrace": [run(9)], "flink-1": [run(2)], "flink-2": [run(1)]}) == (
        "flink-1"
    )
    assert compare._slower({"headrace": [run(9)]}) == ""


def test_unknown_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="no query q99; there are q0"):
        compare.bench(1, RECORDS, ["q99"])


@pytest.fixture(scope="module")
def stack() -> Iterator[Settings]:
    given = Settings.read()
    bids.ensure(given, RECORDS)
    yield given
    for query in compare.QUERIES:
        drop_read_model(given, f"bench-nexmark-{query}")
    drop_topics(given, [bids.topic(RECORDS)])


@pytest.mark.stack
@pytest.mark.parametrize(
    ("query", "name"),
    [("q0", "headrace"), ("q11", "headrace"), ("q5", "flink-1"), ("q7", "streams")],
)
def test_every_engine_answers_right(stack: Settings, tmp_path: Path, query: str, name: str) -> None:
    if name != "headrace" and (why := java.missing()):
        pytest.skip(why)
    side = peers.write_side(tmp_path / "side.csv")
    chosen = compare.contenders(stack, query, bids.numbers(RECORDS), side)
    assert once(chosen[name]).finish.sums
