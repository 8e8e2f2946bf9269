"""Series and their measures, read from the real store: late samples are in them, too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from connectors.telemetry.series import Series
from schemas.telemetry.events import SAMPLES as TOPIC
from schemas.telemetry.events import Sampled, SeriesDeclared
from sinks.telemetry.lines import LineReader
from sinks.telemetry.metrics import Matcher, MetricReader
from sinks.telemetry.query import Span
from sinks.telemetry.rollups import RollupReader
from streams.runtime.sink import SinkRejected
from tests.telemetry import stores
from tests.telemetry.log import DAY, HOT, HOUR, METRICS, MINUTE, ROLLUPS, SAMPLES, T, sample

pytestmark = pytest.mark.stack

SERIES = [Series("load", (("host", f"h{n}"), ("zone", "ab"[n % 2]))) for n in range(4)]
SPAN = Span(T - DAY, T + DAY)


def declared(one: Series) -> SeriesDeclared:
    return SeriesDeclared(
        series_id=one.series_id, name=one.name, labels=one.text, kind="GAUGE", unit="",
        event_time=T,
    )  # fmt: skip


@pytest.fixture(scope="module")
def sent() -> list[Sampled]:
    """Half a day of samples; some come again, some a day late, some both."""
    chance = random.Random(5)
    rows = [
        sample(one.series_id, n * 3 * MINUTE, float(chance.randint(-50, 50)))
        for n in range(240)
        for one in SERIES
    ]
    late = chance.sample(rows[:400], 60)
    kept = [row for row in rows if row not in late[:30]]
    ends = [sample(one.series_id, 13 * HOUR, None) for one in SERIES]
    return [*kept, *chance.sample(kept, 20), *ends, *late, *late[:10]]


@pytest.fixture(scope="module")
def models(sent: list[Sampled]) -> Iterator[stores.Stores]:
    with stores.opened() as opened:
        for projection in (SAMPLES, METRICS):
            opened.fold(projection, [*map(declared, SERIES), *sent], cuts=[9, 100])
        yield opened


@pytest.fixture
async def reader(models: stores.Stores):  # type: ignore[no-untyped-def]
    lines = RollupReader(models.clickhouse(ROLLUPS), LineReader(models.clickhouse(HOT), None))
    opened = MetricReader(models.clickhouse(SAMPLES), models.clickhouse(METRICS), lines)
    yield opened
    await opened.close()
    await lines.close()


def distinct(sent: list[Sampled]) -> dict[tuple[str, int], float | None]:
    return {(row.series_id, row.event_time): row.value for row in sent}


async def test_samples_are_those_that_were_sent(reader: MetricReader, sent: list[Sampled]) -> None:
    found = await reader.select([Matcher("__name__", "=", "load")], SPAN)
    ids = {dict(one.labels)["host"]: one.series_id for one in SERIES}
    held = {
        (ids[one.labels["host"]], at): value
        for one in found
        for at, value in zip(one.times_ms, one.values, strict=True)
    }
    assert held == distinct(sent)
    assert all(list(one.times_ms) == sorted(set(one.times_ms)) for one in found)


@pytest.mark.parametrize(("step", "size"), [("minute", MINUTE), ("hour", HOUR)])
async def test_measures_hold_what_came_late(
    reader: MetricReader, sent: list[Sampled], step: Any, size: int
) -> None:
    expected: dict[tuple[str, int], dict[int, float]] = {}
    for (series_id, at), value in distinct(sent).items():
        if value is not None:
            expected.setdefault((series_id, at // size * size), {})[at] = value
    measured = await reader.measures([Matcher("__name__", "=", "load")], SPAN, step)
    found = {}
    for labels, points in measured:
        own = tuple((k, v) for k, v in labels.items() if k != "__name__")
        for point in points:
            found[Series("load", own).series_id, point.start_ms] = point
    assert set(found) == set(expected)
    for key, values in expected.items():
        point = found[key]
        assert (point.count, point.sum) == (len(values), sum(values.values()))
        assert (point.min, point.max) == (min(values.values()), max(values.values()))
        assert point.last == values[max(values)]


@pytest.mark.parametrize(
    ("matchers", "hosts"),
    [
        ([("zone", "=", "a")], {"h0", "h2"}),
        ([("zone", "!=", "a")], {"h1", "h3"}),
        ([("host", "=~", "h[01]")], {"h0", "h1"}),
        ([("host", "=~", "h")], set()),
        ([("host", "!~", "h[01]"), ("zone", "=", "b")], {"h3"}),
        ([("nope", "=", "")], {"h0", "h1", "h2", "h3"}),
        ([("nope", "!=", "")], set()),
        ([("nope", "=~", ".*")], {"h0", "h1", "h2", "h3"}),
        ([("__name__", "=~", "lo.d"), ("host", "=", "h0")], {"h0"}),
    ],
)
async def test_matchers_mean_what_they_mean_in_prometheus(
    reader: MetricReader, matchers: list[Any], hosts: set[str]
) -> None:
    asked = [Matcher("__name__", "=~", "load|other"), *(Matcher(*one) for one in matchers)]
    assert {one.labels["host"] for one in await reader.select(asked, SPAN)} == hosts


async def test_a_bad_pattern_is_refused(reader: MetricReader) -> None:
    with pytest.raises(SinkRejected):
        await reader.select([Matcher("host", "=~", "(")], SPAN)


async def test_series_are_listed(reader: MetricReader) -> None:
    assert await reader.cardinality(5) == {"load": 4}
    known = await reader.declared()
    assert set(known["load"]) == {one.series_id for one in SERIES}
    assert replace(SERIES[0], kind="COUNTER").series_id in known["load"]
    assert TOPIC.partitions == 4
