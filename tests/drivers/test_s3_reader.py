"""Reads of S3: bounds and filters over many pieces, and how little of the bucket they fetch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sinks.drivers.s3 import frames, plan
from sinks.readers import s3
from sinks.readers.s3 import S3Reader
from streams.runtime.sink import ReadModel, SinkRejected, SinkUnavailable, Table, Upsert
from tests.drivers.model import TOPIC, at, events, no_windows, span, windows
from tests.drivers.rigs import S3Rig

pytestmark = pytest.mark.stack

HOUR_MS = 3_600_000
LINES = Table(
    name="lines",
    key={"hour_ms": pl.Int64, "offset": pl.Int64},
    values={"at": pl.Datetime("ms", "UTC"), "level": pl.String, "text": pl.String},
    bucket=("hour_ms",),
    time="hour_ms",
    append=True,
)
"""Log lines, as a system would keep them for years."""


@pytest.fixture
async def reading(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[S3Rig, S3Reader]]:
    """A rig with its reader, which looks for the live version at every read."""
    monkeypatch.setattr(s3, "LIVE_MS", 0)
    rig = S3Rig()
    rig.sink().prepare(1)
    reader = S3Reader(rig.model, rig.settings, rows_max=50)
    yield rig, reader
    await reader.close()
    rig.close()


@pytest.fixture
def lined() -> Iterator[S3Rig]:
    """A rig for lines."""
    rig = S3Rig()
    rig.model = ReadModel(rig.model.name, (LINES,))
    yield rig
    rig.close()


def instant(offset: int) -> datetime:
    """When `events` has this offset happen."""
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=offset)


async def test_bounds_are_from_inclusive_to_exclusive(reading: tuple[S3Rig, S3Reader]) -> None:
    rig, reader = reading
    sink = rig.sink()
    for i in range(4):
        sink.write(1, span(i * 10 or None, i * 10 + 10, events(*range(i * 10, i * 10 + 10))))
    for low, high in ((8, 22), (0, 40), (10, 20), (39, 99), (40, 99), (5, 5), (30, 10)):
        expected = [o for o in range(40) if low <= o < high]
        for between in (
            {"offset": (low, high)},
            {"at": (instant(low), instant(high))},
            {"offset": (None, high), "at": (instant(low), None)},
        ):
            found = await reader.query("events", between=between, columns=("offset",))
            assert sorted(found["offset"]) == expected
    later = {"at": (instant(8) + timedelta(microseconds=1), instant(9) + timedelta(microseconds=1))}
    assert (await reader.query("events", between=later))["offset"].to_list() == [9]


async def test_bounds_at_the_ends_of_a_type(reading: tuple[S3Rig, S3Reader]) -> None:
    rig, reader = reading
    rig.sink().write(1, span(None, 1, windows((2**63 - 1, "a", -1)), windows((0, "b", 5), spend=7)))
    for between, names in (
        ({"start_ms": (0, None)}, ["a", "b"]),
        ({"start_ms": (2**63 - 1, 2**63)}, ["a"]),
        ({"start_ms": (2**63, None)}, []),
        ({"spend": (-5, 1)}, ["a"]),
        ({"spend": (None, 0)}, []),
        ({"spend": (7, 2**64)}, ["b"]),
        ({"spend": (2**64, 2**65)}, []),
        ({"clicks": (-1, 6)}, ["a", "b"]),
    ):
        found = await reader.query("windows", between=between)
        assert sorted(found["campaign"]) == names, between
    with pytest.raises(KeyError, match="no ranges of campaign"):
        await reader.query("windows", between={"campaign": (0, 1)})


keys_of_few = st.tuples(st.integers(0, 1), st.sampled_from("ab"))
scripts = st.lists(
    st.tuples(
        st.dictionaries(keys_of_few, st.integers(0, 3), min_size=1, max_size=3),
        st.sets(keys_of_few, max_size=1),
    ),
    min_size=1,
    max_size=7,
)
ends = st.none() | st.integers(0, 3)
bounds = st.none() | st.tuples(ends, ends)


replaced = [({(0, "a"): 1}, set()), ({(0, "a"): 3}, set())]
deleted = [({(0, "a"): 1}, set()), ({(0, "b"): 1}, {(0, "a")})]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(replaced, None, (0, 2), 0)
@example(deleted, None, (0, 2), 0)
@given(scripts, bounds, bounds, st.integers(0, 3))
def test_every_query_is_a_filter_of_the_newest_rows(
    monkeypatch: pytest.MonkeyPatch, script: list[Any], keys: Any, values: Any, least: int
) -> None:
    """No bound and no filter brings back a value that was replaced or deleted."""
    monkeypatch.setattr(s3, "LIVE_MS", 0)
    monkeypatch.setattr(plan, "FAN", 3)
    model = dict[Any, int]()
    for new, gone in script:
        model = {key: n for key, n in {**model, **new}.items() if key not in gone}
    between = {"start_ms": keys, "clicks": values}
    between = {column: bound for column, bound in between.items() if bound is not None}

    def inside(value: int, bound: Any) -> bool:
        low, high = bound or (None, None)
        return (low is None or value >= low) and (high is None or value < high)

    with closing(S3Rig()) as rig:
        sink = rig.sink()
        for i, (new, gone) in enumerate(script):
            upserts = windows(*((*key, n) for key, n in new.items()))
            sink.write(1, span(i or None, i + 1, upserts, no_windows(*gone)))
        assert asyncio.run(found_both_ways(rig, between, pl.col("clicks") >= least)) == sorted(
            (*key, n)
            for key, n in model.items()
            if n >= least and inside(key[0], keys) and inside(n, values)
        )


async def found_both_ways(rig: S3Rig, between: Any, where: pl.Expr) -> list[Any]:
    """The windows of a query, which are those of a lazy frame."""
    reader = S3Reader(rig.model, rig.settings)
    rows = await reader.query("windows", between=between, where=where)
    lazily = await reader.collect((await reader.scan("windows", between=between)).filter(where))
    await reader.close()
    assert sorted(rows.rows()) == sorted(lazily.rows())
    return sorted(rows.select("start_ms", "campaign", "clicks").rows())


def lines(hour: int, rows: int) -> pl.DataFrame:
    """An hour of lines, which do not compress well."""
    offsets = pl.int_range(hour * rows, (hour + 1) * rows, eager=True)
    at_ms = hour * HOUR_MS + (offsets - hour * rows) * HOUR_MS // rows
    return pl.DataFrame(
        {
            "hour_ms": pl.repeat(hour * HOUR_MS, rows, dtype=pl.Int64, eager=True),
            "offset": offsets,
            "at": at_ms.cast(pl.Datetime("ms", "UTC")),
            "level": pl.select(pl.when(offsets % 50 == 0).then(pl.lit("E")).otherwise(pl.lit("I")))
            .to_series()
            .rename("level"),
            "text": offsets.hash(7).cast(pl.String),
        },
        schema=LINES.columns,
    )


async def test_a_query_for_an_hour_reads_an_hour(
    lined: S3Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of a merged object of 24, and out of the tail; of one column less."""
    monkeypatch.setattr(frames, "CUT", 24_000)
    monkeypatch.setattr(frames, "ROW_GROUP_ROWS", 1_000)
    rig, sink = lined, lined.sink()
    for hour in range(60):
        sink.write(
            1, span(hour * 1_000 or None, (hour + 1) * 1_000, Upsert(LINES, lines(hour, 1_000)))
        )
    proxied = rig.settings.model_copy(update={"url": rig.proxy_url})
    reader = S3Reader(rig.model, proxied, rows_max=100_000)

    async def fetched(hours: range, *columns: str) -> int:
        before = rig.proxy.replied_bytes
        between = {"hour_ms": (hours.start * HOUR_MS, hours.stop * HOUR_MS)}
        found = await reader.query("lines", between=between, columns=columns)
        assert len(found) == 1_000 * len(hours)
        return rig.proxy.replied_bytes - before

    everything = await fetched(range(60))
    merged, tail = await fetched(range(5, 6)), await fetched(range(58, 59))
    assert max(merged, tail) < everything / 5
    assert await fetched(range(5, 6), "level") < merged
    minute = {
        "at": (datetime.fromtimestamp(5 * 3600, UTC), datetime.fromtimestamp(5 * 3600 + 60, UTC))
    }
    assert len(await reader.query("lines", between=minute)) == 17
    await reader.close()


async def test_a_lazy_frame_is_sorted_and_grouped_before_it_is_fetched(lined: S3Rig) -> None:
    rig, sink = lined, lined.sink()
    for partition in range(2):
        sink.write(1, span(None, 500, Upsert(LINES, lines(0, 500)), partition=partition))
    reader = S3Reader(rig.model, rig.settings, rows_max=100)
    rows = await reader.scan("lines", between={"hour_ms": (0, HOUR_MS)})
    newest = await reader.collect(
        rows.filter(pl.col("level") == "E").sort("at", "_partition").tail(3)
    )
    assert newest.select("offset", "_partition").rows() == [(400, 1), (450, 0), (450, 1)]
    counted = await reader.collect(rows.group_by("level").len().sort("level"))
    assert counted.rows() == [("E", 20), ("I", 980)]
    assert len(await reader.collect((await reader.scan("lines", partition=1)).head(7))) == 7
    with pytest.raises(SinkRejected, match="TOO_MANY_ROWS"):
        await reader.query("lines")
    many = await asyncio.gather(
        *(reader.query("lines", where=pl.col("level") == "E") for _ in range(9))
    )
    assert [len(one) for one in many] == [20] * 9
    await reader.close()


async def test_a_frame_that_is_too_old_says_so(reading: tuple[S3Rig, S3Reader]) -> None:
    rig, reader = reading
    sink = rig.sink()
    sink.write(1, span(None, 1, windows((0, "a", 1))))
    rows = await reader.scan("windows")
    rig.bucket.delete(rig.pieces())
    with pytest.raises(SinkUnavailable, match="scan again"):
        await reader.collect(rows)
    with pytest.raises(SinkUnavailable, match="scan again"):
        await reader.query("windows")


async def test_expired_rows_never_show(reading: tuple[S3Rig, S3Reader]) -> None:
    rig, reader = reading
    sink = rig.sink()
    sink.write(1, span(None, 1, windows((0, "a", 1), (5, "a", 1), (9, "a", 1))))
    sink.write(1, span(1, 2, expire={"windows": 5}))
    assert sorted((await reader.query("windows"))["start_ms"]) == [5, 9]
    assert (await reader.bucket("windows", {"start_ms": 0})).is_empty()
    assert await reader.positions() == {(TOPIC, 0): at(2)}
