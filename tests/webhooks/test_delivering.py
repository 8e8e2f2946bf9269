"""The reactor: signatures, schedule, limits, isolation, redirects, addresses. Real HTTP, no log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from connectors import webhooks as standard
from connectors.outbound import Outbound
from schemas.webhooks import events
from sinks.webhooks.reader import Endpoint, Message
from streams.runtime.reactor.core import Why
from streams.runtime.reactor.testing import Harness
from streams.runtime.settings import Outbound as OutboundSettings
from streams.webhooks import DELIVER, SCHEDULE_MS
from streams.webhooks.delivering import TIMEOUT_MS, Delivering
from tests.webhooks.receivers import Receiver, receivers

OLD, NEW = "whsec_b2xkb2xkb2xkb2xkb2xkb2xk", "whsec_bmV3bmV3bmV3bmV3bmV3bmV3"
VECTOR = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def endpoint(id_: str, url: str, **more: Any) -> Endpoint:
    told = Endpoint(
        id_, 1, deleted=False, url=url, event_types=[], ordered=False, rate_per_s=0,
        description="", secrets=[(OLD, None)], disabled="", created_ms=0, changed_ms=0,
    )  # fmt: skip
    return replace(told, **more)


@dataclass
class Shelf:
    """What the read model has."""

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def endpoint(self, tenant_id: str, endpoint_id: str) -> Endpoint | None:
        return self.endpoints.get(endpoint_id)

    async def message(self, tenant_id: str, sequence: int) -> Message | None:
        return next((one for one in self.messages if one.sequence == sequence), None)

    async def newest(self, tenant_id: str) -> int:
        return self.messages[-1].sequence if self.messages else -1

    async def missed(
        self, tenant_id: str, endpoint: Endpoint, since_ms: int, first: int, stop: int
    ) -> list[Message]:
        self.asked.append((first, stop))
        return [m for m in self.messages if first <= m.sequence < stop and m.at_ms >= since_ms]


@dataclass
class Desk:
    """A reactor over receivers of this process."""

    harness: Harness
    shelf: Shelf

    async def until(self, count: int) -> None:
        """Let calls go on until so many outcomes are there."""
        while len(self.harness.outcomes) < count:
            await asyncio.sleep(0.005)
            await self.harness.settle()

    @property
    def statuses(self) -> list[str]:
        return [one.status for one in self.harness.outcomes]


@asynccontextmanager
async def desk(
    *endpoints: Endpoint,
    allow: Sequence[str] = ("127.0.0.0/8",),
    lookup: Any = None,
    timeout_ms: int = 15_000,
) -> AsyncIterator[Desk]:
    shelf = Shelf({one.endpoint_id: one for one in endpoints})
    more = {"lookup": lookup} if lookup else {}
    settings = OutboundSettings(allow=tuple(allow))
    async with Outbound(settings, answer_bytes_max=65_536, timeout_ms=timeout_ms, **more) as posts:
        made: list[Harness] = []
        handler = Delivering(shelf, posts, lambda: made[0].now_ms, lambda _: asyncio.sleep(0))
        made.append(Harness(DELIVER, handler))
        yield Desk(made[0], shelf)


def wanted(message: str, endpoint_id: str = "e1", **more: Any) -> events.DeliveryRequested:
    told: dict[str, Any] = {
        "endpoint_id": endpoint_id, "tenant_id": "t", "delivery_id": f"{message}/{endpoint_id}",
        "revision": 1, "message_id": message, "sequence": 0, "event_type": "a.b",
        "order_key": "", "body": '{"a":1.0,"ü":"ß"}',
    }  # fmt: skip
    return events.DeliveryRequested(**(told | more))


def test_the_standards_vector_is_signed_as_it_says() -> None:
    body, id_, timestamp_s = b'{"test": 2432232314}', "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330
    headers = standard.signed([standard.key_of(VECTOR)], id_, timestamp_s, body)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert standard.verify([standard.key_of(VECTOR)], headers, body, timestamp_s) == id_


async def test_the_body_is_posted_as_it_is_and_signed_with_every_secret_in_use() -> None:
    at = Receiver()
    async with receivers(at), desk(endpoint("e1", at.url)) as d:
        now = d.harness.now_ms
        d.shelf.endpoints["e1"] = endpoint(
            "e1", at.url, secrets=[(NEW, None), (OLD, now + 5), (VECTOR, now - 5)]
        )
        await d.harness.feed(wanted("m1"))
        await d.until(1)
    (got,) = at.got
    assert got.body == '{"a":1.0,"ü":"ß"}'.encode()
    for secret in (OLD, NEW):
        assert standard.verify([standard.key_of(secret)], got.headers, got.body, now / 1_000)
    assert len(got.headers["webhook-signature"].split()) == 2
    with pytest.raises(standard.NotSigned):
        standard.verify([standard.key_of(NEW)], got.headers, got.body + b" ", now / 1_000)
    with pytest.raises(standard.NotSigned):  # a replay, after the tolerance
        standard.verify([standard.key_of(NEW)], got.headers, got.body, now / 1_000 + 301)


async def test_retries_keep_svix_schedule_and_their_id_and_every_try_is_told() -> None:
    at = Receiver(status=500)
    async with receivers(at), desk(endpoint("e1", at.url)) as d:
        await d.harness.feed(wanted("m1"))
        await d.until(1)
        for n, delay_ms in enumerate(SCHEDULE_MS, 2):
            await d.harness.advance(delay_ms - 1)
            assert len(at.got) == n - 1
            await d.harness.advance(1)
            await d.until(n)
        tried = [(one.attempt, one.final, one.http_status) for one in d.harness.outcomes]
    assert set(at.ids) == {"m1"}
    assert tried == [*((n, False, 500) for n in range(1, 8)), (8, True, 0)]
    assert len(d.harness.dead) == 1
    assert [one.delay_ms for one in d.harness.deferred] == list(SCHEDULE_MS)


@pytest.mark.parametrize(
    ("status", "told"),
    [(200, "delivered"), (204, "delivered"), (302, "failed"), (404, "failed"), (410, "gone"),
     (503, "failed")],
)  # fmt: skip
async def test_only_2xx_is_a_success_and_a_redirect_is_not_followed(status: int, told: str) -> None:
    inner, at = Receiver(), Receiver(status=status)
    async with receivers(inner, at), desk(endpoint("e1", at.url)) as d:
        at.headers = {"Location": inner.url}
        await d.harness.feed(wanted("m1"))
        await d.until(1)
    assert d.statuses == [told]
    assert inner.got == []


async def test_a_receiver_that_is_busy_is_left_alone_as_long_as_it_asks() -> None:
    at = Receiver(status=429, headers={"Retry-After": "60"})
    async with receivers(at), desk(endpoint("e1", at.url)) as d:
        await d.harness.feed(wanted("m1"))
        await d.until(1)
        await d.harness.advance(59_000)
        assert len(at.got) == 1
        at.status = 200
        await d.harness.advance(10_000)
        await d.until(2)
    assert d.statuses == ["failed", "delivered"]


async def test_a_huge_answer_is_not_read_and_counts_by_its_status() -> None:
    at = Receiver(answer=b"x" * 10_000_000)
    async with receivers(at), desk(endpoint("e1", at.url)) as d:
        await d.harness.feed(wanted("m1"))
        await d.until(1)
    assert d.statuses == ["delivered"]


async def test_an_endpoint_that_hangs_delays_nobody() -> None:
    dead, alive, others = Receiver(hang=asyncio.Event()), Receiver(), Receiver()
    async with receivers(dead, alive, others):
        ends = [endpoint("dead", dead.url), endpoint("e1", alive.url), endpoint("e2", others.url)]
        async with desk(*ends) as d:
            rows = []
            for n in range(100):
                rows += [wanted(f"m{n}", "dead"), wanted(f"m{n}"),
                         wanted(f"m{n}", "e2", tenant_id="u")]  # fmt: skip
            await d.harness.feed(*rows)
            await d.until(200)
            assert (len(alive.got), len(others.got)) == (100, 100)
            assert len(dead.got) == DELIVER.limits.per_target
            assert {one.row.endpoint_id for one in d.harness.running} == {"dead"}
            await d.harness.crash()


async def test_tenants_whose_endpoints_all_hang_delay_no_other_tenant() -> None:
    dead, alive = Receiver(hang=asyncio.Event()), Receiver()
    async with receivers(dead, alive):
        names = [f"dead{n}" for n in range(10)]
        ends = [endpoint("e1", alive.url), *(endpoint(one, dead.url) for one in names)]
        async with desk(*ends) as d:
            hung = [
                wanted(f"m{n}", one, tenant_id=tenant)
                for tenant in ("x", "y", "z")
                for one in names
                for n in range(10)
            ]
            await d.harness.feed(*hung, *(wanted(f"m{n}") for n in range(50)))
            await d.until(50)
            assert len(alive.got) == 50
            assert len(d.harness.running) == 3 * DELIVER.limits.per_tenant
            await d.harness.crash()


async def test_the_breaker_of_an_endpoint_opens_costs_no_try_and_is_no_others() -> None:
    bad, good = Receiver(status=500), Receiver()
    async with receivers(bad, good):
        ends = [endpoint("bad", bad.url), endpoint("e1", good.url)]
        async with desk(*ends) as d:
            for n in range(10):
                await d.harness.feed(wanted(f"m{n}", "bad"))
                await d.until(n + 1)
            await d.harness.feed(wanted("late", "bad"), wanted("m1"))
            await d.until(11)
            assert len(bad.got) == 10
            assert d.harness.deferred[-1].why is Why.BREAKER
            assert d.harness.deferred[-1].task.attempt == 1
            assert good.ids == ["m1"]


async def test_the_rate_of_an_endpoint_costs_no_try() -> None:
    at = Receiver()
    async with receivers(at), desk(endpoint("e1", at.url, rate_per_s=2)) as d:
        await d.harness.feed(*(wanted(f"m{n}") for n in range(5)))
        await d.until(2)
        assert len(at.got) == 2
        await d.harness.advance(60_000)
        await d.until(4)
        await d.harness.advance(60_000)
        await d.until(5)
        assert sorted(at.ids) == [f"m{n}" for n in range(5)]
        assert {one.attempt for one in d.harness.outcomes} == {1}


async def test_a_disabled_endpoint_is_not_called_and_an_older_state_is_waited_out() -> None:
    at = Receiver()
    async with receivers(at), desk(endpoint("e1", at.url, disabled="failing")) as d:
        await d.harness.feed(wanted("m1"))
        await d.until(1)
        await d.harness.feed(wanted("m2", revision=2))
        for _ in range(200):
            await d.harness.settle()
        assert d.harness.deferred[-1].why is Why.HELD_BACK
        d.shelf.endpoints["e1"] = endpoint("e1", at.url, revision=2)
        await d.harness.advance(10_000)
        await d.until(2)
    assert d.statuses == ["skipped", "delivered"]
    assert at.ids == ["m2"]


async def test_a_crash_calls_again_with_the_same_id() -> None:
    at = Receiver(hang=asyncio.Event())
    async with receivers(at), desk(endpoint("e1", at.url)) as d:
        await d.harness.feed(wanted("m1"))
        while not at.got:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        at.hang, hang = None, at.hang
        await d.harness.crash()
        await d.until(1)
        hang.set()
    assert at.ids == ["m1", "m1"]
    assert d.statuses == ["delivered"]


async def test_a_recovery_asks_block_by_block_and_ends() -> None:
    at = Receiver()
    async with receivers(at), desk(endpoint("e1", at.url)) as d:
        d.shelf.messages = [Message(n, f"m{n}", "a", "", "{}", 10 * n) for n in range(2_500)]
        step = events.RecoveryStepped("e1", "t", "r", 1, 20, 0, 2_400)
        while True:
            await d.harness.feed(step)
            found = d.harness.outcomes[-1]
            if found.next_sequence >= found.until_sequence:
                break
            step = replace(step, next_sequence=found.next_sequence)
        ids = [m["message_id"] for one in d.harness.outcomes for m in one.messages]
        assert ids == [f"m{n}" for n in range(2, 2_400)]
        assert d.shelf.asked == [(0, 1_000), (1_000, 2_000), (2_000, 2_400)]
        await d.harness.feed(wanted("m7", sequence=7, body=None))
        await d.until(4)
    assert at.got[0].body == b"{}"


async def test_a_recovery_of_an_endpoint_just_enabled_waits_until_that_is_seen() -> None:
    at = Receiver()
    async with receivers(at), desk(endpoint("e1", at.url, disabled="by_hand")) as d:
        d.shelf.messages = [Message(0, "m0", "a", "", "{}", 0)]
        await d.harness.feed(events.RecoveryStepped("e1", "t", "r", 2, 0, 0, 1))
        for _ in range(200):
            await d.harness.settle()
        assert d.harness.outcomes == []
        d.shelf.endpoints["e1"] = endpoint("e1", at.url, revision=2)
        await d.harness.advance(10_000)
        await d.until(1)
    assert [one["message_id"] for one in d.harness.outcomes[0].messages] == ["m0"]


async def test_an_answer_that_does_not_come_in_time_is_a_failed_try() -> None:
    slow = Receiver(hang=asyncio.Event())
    async with receivers(slow), desk(endpoint("e1", slow.url), timeout_ms=100) as d:
        await d.harness.feed(wanted("m1"))
        await d.until(1)
        (told,) = d.harness.outcomes
        assert (told.status, told.final, told.http_status) == ("failed", False, 0)
        assert "no answer in time" in told.detail
    assert TIMEOUT_MS == 15_000


async def test_the_receivers_library_takes_what_is_posted_and_nothing_else() -> None:
    """Standard Webhooks' own library at the other end, before, while and after a rotation."""
    at = Receiver()
    async with receivers(at), desk(endpoint("e1", at.url)) as d:
        now = d.harness.now_ms = time.time_ns() // 1_000_000  # the library looks at the clock
        d.shelf.endpoints["e1"] = endpoint("e1", at.url, secrets=[(NEW, None), (OLD, now + 60_000)])
        await d.harness.feed(wanted("m1"))
        await d.until(1)
        d.shelf.endpoints["e1"] = endpoint("e1", at.url, revision=2, secrets=[(NEW, None)])
        await d.harness.feed(wanted("m2", revision=2))
        await d.until(2)
    both, new = at.got
    for secret in (OLD, NEW):
        assert Webhook(secret).verify(both.body, both.headers) == {"a": 1.0, "ü": "ß"}
    assert Webhook(NEW).verify(new.body, new.headers) == {"a": 1.0, "ü": "ß"}
    stale = new.headers | {"webhook-timestamp": str(now // 1_000 - 301)}
    other = new.headers | {"webhook-id": "m3"}
    refused = [(OLD, new.body, new.headers), (NEW, new.body + b" ", new.headers),
               (NEW, new.body, stale), (NEW, new.body, other)]  # fmt: skip
    for secret, body, headers in refused:
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, headers)


INSIDE = [
    "[::ffff:127.0.0.1]", "[::]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "100.64.0.1",
    "2130706433", "0177.0.0.1", "127.0.0.1", "169.254.169.254", "[::1]", "10.0.0.1", "0.0.0.0",
    "localhost",
]  # fmt: skip


@pytest.mark.parametrize("host", INSIDE)
async def test_no_endpoint_leads_inside(host: str) -> None:
    """SSRF as reported of others: OneUptime/oneuptime#2578 and its kind."""
    at = Receiver()
    async with receivers(at):
        port = at.url.split(":")[2].split("/")[0]
        async with desk(endpoint("e1", f"http://{host}:{port}/"), allow=()) as d:
            await d.harness.feed(wanted("m1"))
            await d.until(1)
    (told,) = d.harness.outcomes
    assert (told.status, told.http_status, at.got) == ("failed", 0, [])


async def test_a_name_that_changes_between_check_and_connection_leads_nowhere() -> None:
    at, asked = Receiver(), 0

    async def lookup(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["192.0.2.1" if asked == 1 else "127.0.0.1"]

    async with receivers(at):
        port = at.url.split(":")[2].split("/")[0]
        url = f"http://moving.example:{port}/"
        async with desk(endpoint("e1", url), allow=(), lookup=lookup, timeout_ms=200) as d:
            await d.harness.feed(wanted("m1"), wanted("m2"))
            await d.until(2)
    assert at.got == []
    assert asked == 2  # each connection asks once, and goes where it was told
