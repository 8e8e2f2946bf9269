"""Timelines against a naive model: order, cut, withdrawal, pages; for the stores that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinks.digest import differences, digest
from sinks.readers.redis import Entry, RedisReader
from streams.runtime.sink import Insert, SinkRejected, Timeline, Withdraw
from tests.drivers.model import read_model, span, stored
from tests.drivers.rigs import PARAMS, RANKED, RIGS, MemoryRig, RedisRig, Rig

FEEDS = Timeline("feeds", {"user": pl.String}, "author", "post", entries_max=4)
NAMES = ["ann", "an", 'b"', "", "é", "a,b", "日本"]
Row = tuple[str, str, str, int]
entries = st.lists(
    st.tuples(
        st.sampled_from(["u", "v,"]),
        st.sampled_from(NAMES),
        st.sampled_from(["p", "q", 'r"']),
        st.integers(-2, 2) | st.sampled_from([2**52 - 1, 1 - 2**52]),
    ),
    max_size=8,
    unique_by=lambda row: row[:3],
)
gone = st.lists(st.tuples(st.sampled_from(["u", "v,"]), st.sampled_from(NAMES)), max_size=3)
script = st.lists(st.tuples(entries, gone), max_size=5)
several = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def inserted(*rows: Row) -> Insert:
    return Insert(FEEDS, pl.DataFrame(list(rows), schema=FEEDS.columns, orient="row"))


def withdrawn(*rows: tuple[str, str]) -> Withdraw:
    wanted = {"user": pl.String, "author": pl.String}
    return Withdraw(FEEDS, pl.DataFrame(list(rows), schema=wanted, orient="row"))


def place(row: Row) -> tuple[int, bytes]:
    return row[3], orjson.dumps([row[1], row[2]])[1:-1]


def naive(held: set[Row], new: list[Row], without: list[tuple[str, str]]) -> set[Row]:
    """The docstrings, row by row."""
    for row in new:
        held = {one for one in held if one[:3] != row[:3]} | {row}
    kept = {
        one
        for user in {row[0] for row in held}
        for one in sorted((r for r in held if r[0] == user), key=place)[-FEEDS.entries_max :]
    }
    return {row for row in kept if row[:2] not in without}


@pytest.fixture(params=[param for param in PARAMS if param.values[0] in RANKED])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    opened: Any = RIGS[request.param]()
    opened.model = type(opened.model)(read_model(rankings=False).name, (FEEDS,))
    yield opened
    opened.close()


@several
@given(script)
def test_a_feed_is_that_of_the_naive_model(
    rig: Rig, script: list[tuple[list[Row], list[tuple[str, str]]]]
) -> None:
    sink, held = rig.sink(), set[Row]()
    sink.prepare(2)
    for i, (new, without) in enumerate(script):
        held = naive(held, new, without)
        sink.write(2, span(i or None, i + 1, inserted(*new), withdrawn(*without)))
    assert stored(sink, "feeds", version=2) == sorted(((*r, 0) for r in held), key=repr)
    sink.drop(2)
    assert stored(sink, "feeds", version=2) == []


def test_large_feeds_are_cut_and_digested_alike(rig: Rig) -> None:
    sink, memory = rig.sink(), MemoryRig()
    memory.model = sink.model
    many = [("u", f"a{n % 7}", f"p{n}", n * 7 % 5_003) for n in range(5_000)]
    for one in (sink, other := memory.sink()):
        for version in (1, 2):
            one.prepare(version)
        one.write(1, span(None, 1, inserted(*many)))
        one.write(2, span(None, 1, inserted(*many[:9]), inserted(*many[9:])))
    assert len(stored(sink, "feeds")) == FEEDS.entries_max
    assert digest(sink, 1) == digest(sink, 2) == digest(other, 1)
    sink.write(2, span(1, 2, inserted(("v", "a", "p", 3)), withdrawn(("u", "a0"))))
    assert {one.table for one in differences(sink, 1, 2)} == {"feeds"}


def test_what_does_not_fit_is_refused(rig: Rig) -> None:
    sink = rig.sink()
    with pytest.raises(SinkRejected, match="time_ms"):
        sink.write(1, span(None, 1, inserted(("u", "a", "p", 2**52))))
    with pytest.raises(SinkRejected, match="no time column"):
        sink.write(1, span(None, 1, expire={"feeds": 3}))
    with pytest.raises(SinkRejected, match="columns"):
        sink.write(1, span(None, 1, Withdraw(FEEDS, inserted(("u", "a", "p", 2)).rows)))
    assert stored(sink, "feeds") == []


@pytest.mark.stack
@several
@given(st.lists(st.tuples(st.integers(0, 2), entries), min_size=1, max_size=3))
def test_pages_are_the_whole_in_order_though_newer_entries_come(
    script: list[tuple[int, list[Row]]],
) -> None:
    rig: Any = RedisRig()
    rig.model = type(rig.model)(rig.model.name, (FEEDS,))
    sink, held = rig.sink(), {partition: set[Row]() for partition in range(3)}
    ends = dict.fromkeys(range(3), 0)

    def write(partition: int, new: list[Row]) -> None:
        end = ends[partition]
        sink.write(1, span(end or None, end + 1, inserted(*new), partition=partition))
        held[partition], ends[partition] = naive(held[partition], new, []), end + 1

    for partition, new in script:
        write(partition, new)
    rows = {row for one in held.values() for row in one}
    whole = {Entry(time_ms, author, post) for _, author, post, time_ms in rows}
    order = sorted(whole, key=Entry.order, reverse=True)

    async def pages() -> None:
        reader = RedisReader(rig.model, rig.url)
        feeds = [{"user": "u"}, {"user": "v,"}]
        assert await reader.newest("feeds", feeds, 100) == order
        found: list[Entry] = []
        while page := await reader.newest("feeds", feeds, 2, found[-1] if found else None):
            found += page
        assert found == order
        assert await reader.newest("feeds", [{"user": "w"}], 5) == []
        await reader.close()

    asyncio.run(pages())
    rig.close()


@pytest.mark.stack
def test_feeds_that_went_leave_no_key() -> None:
    rig: Any = RedisRig()
    rig.model = type(rig.model)(rig.model.name, (FEEDS,))
    sink = rig.sink()
    sink.write(1, span(None, 1))
    bare = set(rig.snapshot())
    sink.write(1, span(1, 2, inserted(("u", "a", "p", 1), ("u", "b", "p", 2))))
    sink.write(1, span(2, 3, withdrawn(("u", "a"), ("u", "b"), ("w", "a"))))
    assert {key for key in set(rig.snapshot()) - bare if not key.endswith(b":tables")} == set()
    rig.close()
