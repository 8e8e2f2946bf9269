"""One query over both tiers: every line once, wherever it is."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.telemetry.events import LogLine
from sinks.telemetry import HOT_MS, query
from sinks.telemetry.lines import LineReader
from sinks.telemetry.query import BadQuery, LogQuery, Page, Span
from sinks.telemetry.rollups import RollupReader
from tests.telemetry import stores
from tests.telemetry.log import (
    COLD,
    DAY,
    HOT,
    HOUR,
    LEVELS,
    MINUTE,
    ROLLUPS,
    T,
    line,
    recount,
    shuffled,
)  # fmt: skip

pytestmark = pytest.mark.stack

NOW = 20 * DAY
EVERYTHING = Span(T - 40 * DAY, T + 40 * DAY)


def twenty_days() -> list[LogLine]:
    """Lines of 20 days in the order of arrival: some hours late, a few weeks late, a tenth sent
    twice, right away or much later.
    """
    chance = random.Random(7)
    lines = [
        line(
            f"{n:04}",
            n * NOW // 1_500,
            stream=f"{service}/{n % 3}",
            service=service,
            level=chance.choice(LEVELS),
            trace_id=f"{n % 40 + 1:032x}",
            body=f"Order {n} {chance.choice(('Paid', 'FAILED 100%', 'timed_out', 'ÄRGER'))}",
            labels='{"host":"h%d","zone":"a"}' % (n % 4),  # noqa: UP031
        )
        for n in range(1_500)
        if (service := ("pay", "cart", "edge-eu")[n % 7 % 3])
    ]
    arrived = shuffled(lines, 2 * HOUR)
    backfill = [replace(x, line_id=f"b{x.line_id}") for x in chance.sample(lines, 60)]
    again = [*chance.sample(lines, 100), *backfill[:10]]
    return [*arrived[:1_400], *arrived[1_390:], *backfill, *again]


@pytest.fixture(scope="module")
def sent() -> list[LogLine]:
    return twenty_days()


@pytest.fixture(scope="module")
def models(sent: list[LogLine]) -> Iterator[stores.Stores]:
    with stores.opened() as opened:
        opened.fold(HOT, sent, cuts=[1, 100, 200])
        opened.fold(COLD, sent, cuts=[150])
        opened.fold(ROLLUPS, sent, cuts=[70])
        yield opened


@pytest.fixture
async def reader(models: stores.Stores):  # type: ignore[no-untyped-def]
    opened = LineReader(models.clickhouse(HOT), models.s3(COLD))
    yield opened
    await opened.close()


async def test_the_tiers_share_the_lines_between_them(
    reader: LineReader, models: stores.Stores, sent: list[LogLine]
) -> None:
    """Both have a part, by the border of each partition, and together each line once."""
    found = await reader.search(LogQuery(), EVERYTHING, Page(5_000))
    ids = [one.line_id for one in found]
    assert sorted(ids) == sorted({one.line_id for one in sent})
    tiers = Counter(one.tier for one in found)
    assert tiers["hot"] > 900 and tiers["cold"] > 300
    positions = await reader.tiers.hot.positions()
    borders = {at: p.expired_ms["lines"] for (_, at), p in positions.items()}
    for one in found:
        assert (one.tier == "cold") == (one.event_time // HOUR * HOUR < borders[one.partition])
    assert await reader.needs_cold(EVERYTHING)
    assert not await reader.needs_cold(Span(T + NOW - HOUR, T + NOW))


async def test_totals_from_both_tiers_the_rollups_and_a_recount_agree(
    reader: LineReader, models: stores.Stores, sent: list[LogLine]
) -> None:
    rollups = RollupReader(models.clickhouse(ROLLUPS), reader)
    expected = recount(sent, HOUR)
    total = len({one.line_id for one in sent})
    raw = await reader.count(EVERYTHING, HOUR)
    assert {(a, b, c): (n, w) for a, b, c, n, w in raw.iter_rows()} == expected
    for step in ("minute", "hour"):
        counted = await rollups.counts(EVERYTHING, step)
        size = MINUTE if step == "minute" else HOUR
        assert {(a, b, c): (n, w) for a, b, c, n, w in counted.iter_rows()} == recount(sent, size)
    audit = await rollups.audit(EVERYTHING)
    assert audit.rollups + audit.late == audit.raw == total
    assert audit.late >= 40
    everything_cold = await models.s3(COLD).query("lines", columns=("line_id",))
    assert everything_cold["line_id"].n_unique() == total
    await rollups.close()


QUERIES = [
    "", "paid", "-paid", "service:pay level:error,fatal", "service:edge-*", "level:>=warn order",
    f"trace:{5:032x}", "host:h2", "100%", '"failed 100%" service:pay', "timed_out", "timedXout",
    "Ärger", "ärger", "service:nobody", "stream:cart/1 host:h1 -failed", "zone:a @host:h0 order",
]  # fmt: skip


@pytest.mark.parametrize("text", QUERIES)
async def test_a_search_finds_what_plain_python_finds(
    reader: LineReader, sent: list[LogLine], text: str
) -> None:
    asked = query.parse(text)
    span = Span(T + DAY, T + 19 * DAY)
    found = await reader.search(asked, span, Page(5_000))
    expected = {
        one.line_id: one
        for one in sent
        if span.from_ms <= one.event_time < span.to_ms and holds(asked, one)
    }
    assert [one.line_id for one in found] == sorted(
        expected, key=lambda i: (expected[i].event_time, i), reverse=True
    )


def holds(asked: LogQuery, one: LogLine) -> bool:
    """The meaning of a query, in plain Python."""
    body = query.lowered(one.body)
    labels = set(json.loads(one.labels).items())
    return (
        (not asked.services or any(
            one.service == s or (s.endswith("*") and one.service.startswith(s[:-1]))
            for s in asked.services
        ))
        and (not asked.levels or one.level in asked.levels)
        and (not asked.trace_id or one.trace_id == asked.trace_id)
        and (not asked.stream or one.stream == asked.stream)
        and all(text in body for text in asked.texts)
        and not any(text in body for text in asked.without)
        and all(label in labels for label in asked.labels)
    )  # fmt: skip


async def test_pages_are_the_whole_without_gap_or_repeat(
    reader: LineReader, sent: list[LogLine]
) -> None:
    seen: list[str] = []
    page = Page(97)
    while found := await reader.search(LogQuery(), EVERYTHING, page):
        seen += [one.line_id for one in found]
        last = found[-1]
        page = Page(97, (last.event_time, last.nanos, last.line_id))
    assert len(seen) == len(set(seen)) == len({one.line_id for one in sent})


async def test_following_goes_on_behind_an_offset(
    reader: LineReader, models: stores.Stores
) -> None:
    applied = await reader.applied()
    after = {partition: max(0, offset - 3) for (_, partition), offset in applied.items()}
    found = await reader.since(LogQuery(), after, 100)
    assert {one.partition for one in found} <= set(after)
    assert all(one.offset >= after[one.partition] for one in found)
    assert found == sorted(found, key=lambda one: (one.partition, one.offset)) or len(after) > 1


texts = st.text(st.sampled_from("aAzZ%_\\\"'{}:,ßÄä\x7fK "), max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(texts, min_size=1, max_size=6), texts, st.dictionaries(texts, texts, max_size=2))
@example(["ab"], "\\", {"a": '"'})
@example(["Kelvin K"], "k", {})
def test_both_translations_say_the_same(
    models: stores.Stores, bodies: list[str], wanted: str, labels: dict[str, str]
) -> None:
    """ClickHouse and Polars on the same lines, whatever is in message, label and query."""
    from connectors.telemetry.line import canonical

    asked = LogQuery(
        texts=(query.lowered(wanted),) if wanted else (),
        labels=tuple(labels.items())[:1],
    )
    frame = pl.DataFrame(
        {
            "n": range(2 * len(bodies)),
            "body": bodies * 2,
            "labels": [canonical(labels)] * len(bodies)
            + [canonical({"x" + wanted: wanted})] * len(bodies),
        }
    ).with_columns(service=pl.lit("s"), level=pl.lit("INFO"))
    conditions, parameters = asked.sql()
    values = {f"b{n}": body for n, body in enumerate(frame["body"])}
    values |= {f"l{n}": text for n, text in enumerate(frame["labels"])}
    rows = " UNION ALL ".join(
        f"SELECT {n} AS n, {{b{n}:String}} AS body, {{l{n}:String}} AS labels"
        for n in range(frame.height)
    )
    where = " AND ".join(conditions) or "1"
    found = models.client.query(
        f"SELECT n FROM ({rows}) WHERE {where} ORDER BY n", parameters={**values, **parameters}
    ).result_rows
    assert [n for (n,) in found] == frame.filter(asked.expression())["n"].to_list()


@pytest.mark.parametrize(
    "text", ['"open', "level:loud", "-service:x", "level:>=warn,error", 'a"b"', "x " * 40, '""']
)
def test_what_is_no_query_says_so(text: str) -> None:
    with pytest.raises(BadQuery):
        query.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_a_query_or_is_refused(text: str) -> None:
    try:
        query.parse(text).sql()
    except BadQuery:
        assert text.strip()


def test_hot_time_is_what_it_says() -> None:
    assert HOT_MS == 15 * DAY
