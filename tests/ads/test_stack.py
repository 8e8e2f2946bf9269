"""Events in at the API, through Kafka, two agents and two stores, and out at the API."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest

from schemas.ads.events import AdClicked
from streams.runtime.kafka import partition_of
from tests import stack
from tests.ads.log import EVENTS, GOOGLEBOT, HOUR, MINUTE, Event, T, click, recount, shown

pytestmark = pytest.mark.stack

EVENTS_URL = "/v1/ads/events:batch"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), "ads-windows", "ads-events"):
        yield


@pytest.fixture
async def api(worker: None, tmp_path: Any) -> AsyncIterator[stack.Api]:
    async with stack.api(tmp_path) as opened:
        yield opened


@pytest.fixture
def tag() -> str:
    """Begins the names of this run, since the topic holds what others wrote."""
    return uuid.uuid4().hex[:8]


def body(*events: Event) -> dict[str, Any]:
    return {"events": [{"type": type(event).__name__, **asdict(event)} for event in events]}


def ago(ms: int) -> int:
    """So many milliseconds ago, in milliseconds after `T`: the topic may have reached now."""
    return int(time.time() * 1_000) - ms - T


def around(*events: Event) -> dict[str, int]:
    """The whole hours around these events, as parameters of a read."""
    times = [event.event_time for event in events]
    return {"from": min(times) // HOUR * HOUR, "to": max(times) // HOUR * HOUR + HOUR}


def traffic(tag: str) -> list[Event]:
    """Half an hour of 30 users with bots and reused ids, a fifth repeated, shuffled."""
    chance = random.Random(4)
    start = ago(HOUR // 2)
    log: list[Event] = []
    for n in range(150):
        shared = {
            "at": start + n * 10_000,
            "user_id": f"{tag}-u{n % 30}",
            "campaign_id": f"{tag}-{'hot' if n % 10 else 'cold'}",
            "ad_id": f"{tag}-{'abc'[n % 3]}",
        }
        log.append(shown(f"{tag}-{n}", **shared))
        agent = GOOGLEBOT if n % 8 == 0 else None
        log.append(click(f"{tag}-{n}", **shared, user_agent=agent, cost_micros=n))
    log += [replace(event, country="NL") for event in log[50:60]]
    log += [click(f"{tag}-h{n}", ago(n), user_id=f"{tag}-h", campaign_id=f"{tag}-hot")
            for n in range(12)]  # fmt: skip
    log += chance.choices(log, k=len(log) // 5)
    chance.shuffle(log)
    return log


async def test_what_is_sent_is_read_back_to_the_unit(api: stack.Api, tag: str) -> None:
    log = traffic(tag)
    await api.write(EVENTS_URL, body(*log))

    expected: dict[tuple[str, str, int], tuple[int, ...]] = {}
    for partition in range(EVENTS.partitions):
        part = [e for e in log if partition_of(e.user_id, EVENTS.partitions) == partition]
        counted = recount(part)
        assert "late" not in counted.fates
        for key, more in counted.minutes.items():
            expected[key] = tuple(map(sum, zip(expected.get(key, (0, 0, 0)), more, strict=True)))
    span = around(*log)
    for campaign in (f"{tag}-hot", f"{tag}-cold"):
        minutes = (await api.read(f"/v1/ads/campaigns/{campaign}/minutes", **span)).json()
        found = {m["start_ms"]: (m["impressions"], m["clicks"], m["cost_micros"]) for m in minutes}
        wanted: dict[int, tuple[int, ...]] = {}
        for (name, _, minute), counts in expected.items():
            if name == campaign:
                wanted[minute] = tuple(
                    map(sum, zip(wanted.get(minute, (0, 0, 0)), counts, strict=True))
                )
        assert found == wanted
        ads = (await api.read(f"/v1/ads/campaigns/{campaign}/ads/top", **span)).json()
        assert sum(ad["clicks"] for ad in ads) == sum(counts[1] for counts in wanted.values())
        assert ads == sorted(ads, key=lambda ad: (-ad["clicks"], ad["ad_id"]))
    top = await api.read("/v1/ads/campaigns/top", **span, n=1_000)
    hot = {row["campaign_id"]: row["impressions"] for row in top.json()}[f"{tag}-hot"]
    assert hot == sum(c[0] for key, c in expected.items() if key[0] == f"{tag}-hot")


async def test_the_stream_is_the_recount(api: stack.Api, tag: str) -> None:
    log = traffic(tag)
    await api.write(EVENTS_URL, body(*log))
    found = (await api.read("/v1/ads/totals", **around(*log))).json()
    assert found["difference"] == {"impressions": 0, "clicks": 0, "cost_micros": 0}
    assert found["stream"] == found["recount"]
    assert found["stream"]["impressions"] >= 150


async def test_sent_again_changes_nothing(api: stack.Api, tag: str) -> None:
    one = click(f"{tag}-k", ago(0), user_id=tag, campaign_id=tag)
    url = f"/v1/ads/campaigns/{tag}/minutes"
    await api.write(EVENTS_URL, body(one))
    first = await api.read(url, **around(one))
    await api.write(EVENTS_URL, body(one, one))
    again = await api.read(url, **around(one))
    assert again.json() == first.json()
    (minute,) = first.json()
    assert (minute["clicks"], minute["cost_micros"], minute["final"]) == (1, 5, False)


async def test_what_comes_too_late_is_an_adjustment(api: stack.Api, tag: str) -> None:
    mine = {"user_id": tag, "campaign_id": tag}
    late = click(f"{tag}-late", ago(3 * HOUR), **mine)
    timely = click(f"{tag}-now", ago(0), **mine)
    await api.write(EVENTS_URL, body(timely))
    await api.write(EVENTS_URL, body(late, late))
    adjustments = await api.read(f"/v1/ads/campaigns/{tag}/adjustments", **around(late))
    assert adjustments.json() == [
        {
            "start_ms": late.event_time // MINUTE * MINUTE,
            "impressions": 0,
            "clicks": 1,
            "cost_micros": 5,
        }
    ]
    minutes = await api.read(f"/v1/ads/campaigns/{tag}/minutes", **around(late, timely))
    assert [m["start_ms"] for m in minutes.json()] == [timely.event_time // MINUTE * MINUTE]


async def test_a_campaign_nobody_knows_is_empty(api: stack.Api, tag: str) -> None:
    one = click(f"{tag}-k", ago(0), user_id=tag, campaign_id=tag)
    await api.write(EVENTS_URL, body(one))
    for path in ("minutes", "ads/top", "adjustments"):
        answer = await api.read(f"/v1/ads/campaigns/{tag}-other/{path}", **around(one))
        assert (answer.status_code, answer.json()) == (200, [])


async def test_a_position_that_is_not_there_yet_is_504(api: stack.Api) -> None:
    answer = await api.client.get(
        "/v1/ads/campaigns/c/minutes",
        params={"from": 0, "to": 0},
        headers={"Headrace-After": "ads.events/0/999999999999", "Prefer": "wait=0"},
    )
    assert answer.status_code == 504
    assert answer.json()["type"] == "urn:headrace:problem:not-applied-yet"


def test_the_events_are_what_the_api_takes() -> None:
    """`body` sends every field of a record, so nothing is left to a default that hides a fault."""
    (sent,) = body(click())["events"]
    assert set(sent) == {"type", *AdClicked.__slots__}
