"""What the readers answer of windows in Redis and events in ClickHouse, against a recount."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from schemas.ads.events import EVENTS
from sinks.ads.history import Adjustment, AdsAudit, AdsHistory, Audit
from sinks.ads.windows import AdsReader, AdTotals, CampaignTotals, Minute, Totals
from sinks.drivers import clickhouse
from sinks.drivers.redis import RedisSink, connect
from sinks.readers.clickhouse import ClickHouseReader
from sinks.readers.redis import RedisReader
from streams.runtime.kafka import partition_of
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel, Sink, SinkUnavailable
from streams.runtime.testing import Harness
from tests.ads.log import (
    BOUND,
    CLOSED,
    GOOGLEBOT,
    HISTORY,
    HOUR,
    MINUTE,
    WINDOWS,
    Event,
    T,
    click,
    recount,
    shown,
)

pytestmark = pytest.mark.stack

USERS = {partition_of(user, EVENTS.partitions): user for user in map(str, range(99))}
"""A user of each partition."""


@dataclass
class Ads:
    """Both read models under names of this test, their readers, and the partitions' harnesses."""

    windows: AdsReader
    history: AdsHistory
    audit: AdsAudit
    harnesses: dict[str, list[Harness]]

    def send(self, *events: Event) -> None:
        """Append to the partitions' logs; nothing is folded yet."""
        for event in events:
            partition = partition_of(event.user_id, EVENTS.partitions)
            for harnesses in self.harnesses.values():
                harnesses[partition].send(event)

    def fold(self, *names: str) -> None:
        """Fold what was sent, in both models or in those named."""
        for name in names or self.harnesses:
            for harness in self.harnesses[name]:
                harness.run([7])

    def tick(self, at: int) -> None:
        """An event with this watermark behind it in every partition."""
        for partition, user in USERS.items():
            name = f"tick{partition}-{at}"
            self.send(shown(name, at + BOUND, user_id=user, campaign_id="tick"))
        self.fold()


@pytest.fixture
async def ads() -> AsyncIterator[Ads]:
    settings, tag = Settings.read(), uuid.uuid4().hex[:8]
    redis_url = settings.redis.url.get_secret_value()
    clickhouse_url = settings.clickhouse.url.get_secret_value()
    models = [replace(p.model, name=f"test-{tag}-{p.model.name}") for p in (WINDOWS, HISTORY)]
    client: Any = connect(redis_url)
    server = clickhouse.connect(clickhouse_url)
    sinks: list[Sink] = [
        RedisSink(models[0], client),
        clickhouse.ClickHouseSink(models[1], server),
    ]
    windows = AdsReader(RedisReader(models[0], redis_url))
    history = AdsHistory(ClickHouseReader(models[1], clickhouse_url))
    harnesses = {
        name: [Harness(projection, sink, partition=p) for p in range(EVENTS.partitions)]
        for name, projection, sink in zip(
            ("windows", "history"), (WINDOWS, HISTORY), sinks, strict=True
        )
    }
    yield Ads(windows, history, AdsAudit(windows, history), harnesses)
    await windows.close()
    await history.close()
    for key in client.scan_iter(f"{{{models[0].name}*"):
        client.delete(key)
    client.close()
    drop(server, models[1])


def drop(server: Any, model: ReadModel) -> None:
    prefix = model.name.replace("-", "_")
    found = server.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() "
        "AND startsWith(name, {prefix:String}) ORDER BY engine = 'View' DESC",
        parameters={"prefix": prefix},
    )
    for (name,) in found.result_rows:
        server.command(f"DROP TABLE {name} SYNC")
    server.close()


async def test_before_anything_is_stored(ads: Ads) -> None:
    assert await ads.windows.applied() == {}
    assert await ads.windows.minutes("c", T, T + HOUR) == []
    assert await ads.windows.top_ads("c", "clicks", 5, T, T + HOUR) == []
    assert await ads.windows.top_campaigns("clicks", 5, T, T + HOUR) == []
    assert await ads.audit.totals(T, T + HOUR) == Audit(*[Totals(0, 0, 0)] * 3)


async def test_a_history_that_was_never_written_is_empty() -> None:
    model = replace(HISTORY.model, name=f"test-{uuid.uuid4().hex[:8]}-none")
    reader = AdsHistory(ClickHouseReader(model, Settings.read().clickhouse.url.get_secret_value()))
    assert await reader.applied() == {}
    assert await reader.adjustments("c", T, T + HOUR) == []
    assert await reader.recount(T, T + HOUR, {}) == Totals(0, 0, 0)
    await reader.close()


async def test_minutes_of_a_campaign_that_is_on_all_partitions(ads: Ads) -> None:
    for n, user in enumerate(USERS.values()):
        ads.send(shown(f"i{n}", n, user_id=user), click(f"k{n}", MINUTE, user_id=user, ad_id="b"))
        ads.send(click(f"h{n}", HOUR, user_id=user), shown(f"o{n}", user_id=user, campaign_id="d"))
    ads.fold("windows")
    n = len(USERS)
    first, second, third = (
        Minute(n, 0, 0, start_ms=T, final=False),
        Minute(0, n, 5 * n, start_ms=T + MINUTE, final=False),
        Minute(0, n, 5 * n, start_ms=T + HOUR, final=False),
    )
    assert await ads.windows.minutes("c", T, T + 2 * HOUR) == [first, second, third]
    assert await ads.windows.minutes("c", T + MINUTE, T + HOUR) == [second]
    assert await ads.windows.minutes("c", T, T) == []
    assert await ads.windows.minutes("e", T, T + HOUR) == []


async def test_a_minute_is_final_once_every_partition_is_past_its_lateness(ads: Ads) -> None:
    ads.send(click())
    ads.tick(MINUTE + HOUR - 1)
    (minute,) = await ads.windows.minutes("c", T, T + MINUTE)
    assert not minute.final
    last = USERS[0]
    for partition, user in USERS.items():
        (minute,) = await ads.windows.minutes("c", T, T + MINUTE)
        assert not minute.final, f"before partition {partition}"
        ads.send(shown(f"{partition}", MINUTE + HOUR + BOUND, user_id=user, campaign_id="tick"))
        ads.fold("windows")
    (minute,) = await ads.windows.minutes("c", T, T + MINUTE)
    assert minute == Minute(0, 1, 5, start_ms=T, final=True)
    ads.send(click("late", user_id=last))
    ads.fold("windows")
    assert await ads.windows.minutes("c", T, T + MINUTE) == [minute]


async def test_a_minute_is_not_final_while_a_partition_has_no_events(ads: Ads) -> None:
    ads.send(click(user_id=USERS[0]), click("now", CLOSED + HOUR, user_id=USERS[0]))
    ads.fold("windows")
    (minute,) = await ads.windows.minutes("c", T, T + MINUTE)
    assert not minute.final


async def test_the_best_ads_and_campaigns(ads: Ads) -> None:
    users = list(USERS.values())
    for n, ad in enumerate("abcd"):
        for k in range(n + 1):
            ads.send(click(f"{ad}{k}", k, ad_id=ad, user_id=users[k % 4], cost_micros=100 - 30 * n))
    ads.send(click("x", HOUR, ad_id="e", campaign_id="later", cost_micros=7))
    ads.send(shown("i", ad_id="f", campaign_id="shown"))
    ads.fold("windows")
    assert await ads.windows.top_ads("c", "clicks", 2, T, T + MINUTE) == [
        AdTotals(0, 4, 40, ad_id="d"),
        AdTotals(0, 3, 120, ad_id="c"),
    ]
    by_cost = await ads.windows.top_ads("c", "cost_micros", 9, T, T + MINUTE)
    assert [t.ad_id for t in by_cost] == ["b", "c", "a", "d"]
    assert [t.ad_id for t in await ads.windows.top_ads("c", "impressions", 9, T, T + HOUR)] == []
    by_clicks = await ads.windows.top_campaigns("clicks", 9, T, T + 2 * HOUR)
    assert [t.campaign_id for t in by_clicks] == ["c", "later"]
    assert await ads.windows.top_campaigns("cost_micros", 9, T + HOUR, T + 2 * HOUR) == [
        CampaignTotals(0, 1, 7, campaign_id="later")
    ]
    assert await ads.windows.top_campaigns("impressions", 9, T, T + HOUR) == [
        CampaignTotals(1, 0, 0, campaign_id="shown")
    ]


def traffic(chance: random.Random) -> Sequence[Event]:
    """Two hours of clicks and impressions, a fifth repeated, some ids reused, all reordered."""
    log: list[Event] = []
    for n in range(600):
        shared = {"at": chance.randrange(2 * HOUR), "user_id": f"u{chance.randrange(40)}"}
        log.append(shown(f"{n}", **shared))
        agent = GOOGLEBOT if n % 10 == 0 else None
        log.append(click(f"{n - n % 9 // 8}", **shared, user_agent=agent, cost_micros=n))
    log += chance.choices(log, k=len(log) // 5)
    chance.shuffle(log)
    return log


async def test_stream_and_recount_come_to_the_same_unit(ads: Ads) -> None:
    log = traffic(random.Random(2))
    ads.send(*log)
    ads.fold()
    expected = [0, 0, 0]
    fates: set[str] = set()
    for partition in range(EVENTS.partitions):
        part = recount([e for e in log if partition_of(e.user_id, EVENTS.partitions) == partition])
        fates |= set(part.fates)
        for minute in part.minutes.values():
            expected = [total + more for total, more in zip(expected, minute, strict=True)]
    assert fates == {"applied", "duplicate", "late", "filtered"}
    found = await ads.audit.totals(T, T + 2 * HOUR)
    assert found == Audit(Totals(*expected), Totals(*expected), Totals(0, 0, 0))
    hours = [await ads.audit.totals(T + h * HOUR, T + (h + 1) * HOUR) for h in range(2)]
    assert sum(hour.stream.clicks for hour in hours) == expected[1]
    assert all(hour.difference == Totals(0, 0, 0) for hour in hours)


async def test_a_history_that_is_ahead_is_counted_up_to_the_windows(ads: Ads) -> None:
    ads.send(click("1"), click("2"))
    ads.fold()
    ads.send(click("3"), click("4", user_id=USERS[0]))
    ads.fold("history")
    assert await ads.audit.totals(T, T + HOUR) == Audit(
        Totals(0, 2, 10), Totals(0, 2, 10), Totals(0, 0, 0)
    )
    assert await ads.audit.applied() == await ads.windows.applied()


async def test_a_history_that_is_behind_is_waited_for(
    ads: Ads, monkeypatch: pytest.MonkeyPatch
) -> None:
    ads.send(click("1"))
    ads.fold("windows")
    asked = asyncio.create_task(ads.audit.totals(T, T + HOUR))
    await asyncio.sleep(0)
    ads.fold("history")
    assert (await asked).difference == Totals(0, 0, 0)
    ads.send(click("2"))
    ads.fold("windows")
    monkeypatch.setattr("sinks.ads.history.BEHIND_MS", 100)
    with pytest.raises(SinkUnavailable, match="not got as far"):
        await ads.audit.totals(T, T + HOUR)


async def test_a_fold_that_counts_wrongly_shows(ads: Ads) -> None:
    """The audit has its own eyes: an event that only one of the stores has is a difference."""
    ads.send(click("1"), shown("2"))
    ads.fold()
    for harness in ads.harnesses["windows"]:
        harness.send(click("3", user_id=USERS[harness.partition], cost_micros=9))
    for harness in ads.harnesses["history"]:
        harness.tick(T)
    ads.fold()
    found = await ads.audit.totals(T, T + HOUR)
    assert found.difference == Totals(0, len(USERS), 9 * len(USERS))


async def test_what_came_too_late_is_an_adjustment_once(ads: Ads) -> None:
    user = USERS[1]
    timely = [click("t", user_id=user), click("t", user_id=user, ad_id="b")]
    late = [
        click("l", 1, user_id=user),
        click("l", 1, user_id=user),
        click("l", 1, user_id=user, ad_id="b", cost_micros=7),
        shown("l", MINUTE, user_id=user),
        click("bot", 1, user_id=user, user_agent=GOOGLEBOT),
        click("other", 1, user_id=user, campaign_id="d"),
    ]
    now = shown("now", CLOSED + MINUTE, user_id=user, campaign_id="tick")
    ads.send(*timely, now, *timely, *late)
    ads.fold()
    assert sum(h.counts.get("late", 0) for h in ads.harnesses["history"]) == len(late) - 1 + 2
    expected = [Adjustment(0, 2, 12, start_ms=T), Adjustment(1, 0, 0, start_ms=T + MINUTE)]
    assert await ads.history.adjustments("c", T, T + HOUR) == expected
    assert await ads.history.adjustments("c", T, T + MINUTE) == expected[:1]
    assert await ads.history.adjustments("d", T, T + MINUTE) == [Adjustment(0, 1, 5, start_ms=T)]
    assert await ads.history.adjustments("' OR 1 = 1 --", T, T + HOUR) == []
    assert (await ads.audit.totals(T, T + HOUR)).difference == Totals(0, 0, 0)
