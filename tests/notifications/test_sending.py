"""The lanes' reactors under the real rules of reactors: failures, tries, crashes, redrive."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from connectors.notifications.bucket import Breaker, Bucket
from connectors.notifications.failover import Failover, Line
from connectors.notifications.message import InvalidAddress, Message, Refused, Temporary
from schemas.notifications import events as e
from streams.notifications import SENDING, SYSTEM
from streams.notifications.campaigns import TOGETHER, Campaigns, command
from streams.notifications.sending import Sending
from streams.runtime.reactor.testing import Harness
from tests.notifications.desk import Desk, desk

OTP = SENDING[0]
CAMPAIGNS = SYSTEM.reactors[-1]
START = 1_700_000_000_000


@dataclass
class Account:
    """A provider that notes what it takes."""

    name: str
    error: Exception | None = None
    hangs: bool = False
    taken: list[Message] = field(default_factory=list)

    async def send(self, message: Message) -> str:
        if self.error is not None:
            raise self.error
        self.taken.append(message)
        if self.hangs:
            await asyncio.Event().wait()
        return f"{self.name}-{len(self.taken)}"

    async def close(self) -> None:
        self.taken.clear()


class Stage:
    """A lane with two providers of SMS and one of push, on the harness's clock."""

    def __init__(self, reactor: Any = OTP, rate_per_s: float = 1_000) -> None:
        self.a, self.b, self.push = Account("a"), Account("b"), Account("p")
        self.published: list[e.TemplatePublished] = [template()]
        self.commands: list[Any] = []
        channels = {
            "sms": Failover([self.line(self.a, rate_per_s), self.line(self.b, rate_per_s)]),
            "push": Failover([self.line(self.push, rate_per_s)]),
        }
        self.harness = Harness(reactor, Sending(channels, self, self, self.now))

    def line(self, account: Account, rate_per_s: float) -> Line:
        return Line(account, Bucket(rate_per_s, 100, self.now), Breaker(100, 1_000, self.now))

    def now(self) -> int:
        return self.harness.now_ms

    async def template(self, name: str, version: str = "") -> e.TemplatePublished | None:
        return next((one for one in self.published if one.version == version), None)

    async def send(self, rows: Any) -> None:
        self.commands += rows

    @property
    def told(self) -> list[str]:
        return [outcome.status for outcome in self.harness.outcomes]


def template(version: str = "v1", text: str = "code {{ code }}") -> e.TemplatePublished:
    contents = [
        e.Content(channel=channel, locale="en", subject="", text=text, html="")
        for channel in ("sms", "push")
    ]
    return e.TemplatePublished("login", version, "otp", "en", contents, 0, 0, 0)


def asked(n: int = 1, channel: str = "sms", **fields: Any) -> e.DeliveryRequested:
    made: dict[str, Any] = {
        "delivery_id": f"n-{n}/{channel}",
        "notification_id": f"n-{n}",
        "user_id": "u",
        "channel": channel,
        "address": f"+49{n}" if channel == "sms" else "tok-u",
        "template": "login",
        "template_version": "v1",
        "priority": "otp",
        "params": '{"code": "1"}',
        "locale": "de",
        "expires_at": None,
    }
    return e.DeliveryRequested(**(made | fields))


async def test_a_message_is_rendered_sent_and_reported() -> None:
    stage = Stage()
    await stage.harness.feed(asked())
    (outcome,) = stage.harness.outcomes
    assert (outcome.status, outcome.provider, outcome.provider_message_id) == ("sent", "a", "a-1")
    assert (outcome.delivery_id, outcome.notification_id) == ("n-1/sms", "n-1")
    assert stage.a.taken == [Message("n-1/sms", "sms", "+491", "", "code 1")]


async def test_the_second_provider_takes_over_at_once() -> None:
    stage = Stage()
    stage.a.error = Temporary("down")
    await stage.harness.feed(asked())
    assert [outcome.provider for outcome in stage.harness.outcomes] == ["b"]
    assert not stage.harness.deferred


async def test_with_all_down_it_is_tried_again_and_then_set_aside_and_redriven() -> None:
    stage = Stage()
    stage.a.error = stage.b.error = Temporary("down")
    await stage.harness.feed(asked())
    await stage.harness.advance(60_000)
    assert len(stage.harness.calls) == OTP.retry.tries_max
    assert len({task.id for task in stage.harness.calls}) == 1
    assert (stage.told, len(stage.harness.dead)) == (["failed"], 1)
    stage.b.error = None
    await stage.harness.redrive()
    assert stage.told == ["failed", "sent"]
    assert [message.id for message in stage.b.taken] == ["n-1/sms"]


async def test_a_code_is_not_sent_too_late() -> None:
    stage = Stage()
    stage.a.error = stage.b.error = Temporary("down")
    await stage.harness.feed(asked(expires_at=START + 3_000))
    stage.a.error = None
    await stage.harness.advance(60_000)
    assert stage.told == ["sent"]
    await stage.harness.feed(asked(2, expires_at=stage.now()))
    assert stage.told == ["sent", "expired"]
    assert len(stage.a.taken) == 1


@pytest.mark.parametrize(
    ("error", "channel", "status", "pruned"),
    [
        (Refused("spam"), "push", "failed", []),
        (InvalidAddress("gone"), "push", "invalid_address",
         [e.RemoveDevice("u", "tok-u", "invalid")]),
        (InvalidAddress("gone"), "sms", "invalid_address", []),
    ],
)  # fmt: skip
async def test_what_will_never_work_is_reported_and_dead_devices_are_pruned(
    error: Exception, channel: str, status: str, pruned: list[Any]
) -> None:
    stage = Stage()
    stage.a.error = stage.push.error = error
    await stage.harness.feed(asked(channel=channel))
    assert (stage.told, stage.commands) == ([status], pruned)
    assert not stage.harness.dead


async def test_a_template_that_is_not_there_yet_is_waited_for_and_then_kept() -> None:
    stage = Stage()
    stage.published.clear()
    await stage.harness.feed(asked())
    assert stage.told == []
    stage.published.append(template())
    await stage.harness.advance(5_000)
    assert stage.told == ["sent"]
    stage.published.clear()
    await stage.harness.feed(asked(2))
    assert stage.told == ["sent", "sent"]


async def test_a_text_that_cannot_be_rendered_is_an_outcome() -> None:
    stage = Stage()
    await stage.harness.feed(asked(params="{}"))
    assert stage.told == ["failed"]
    assert "'code' is undefined" in stage.harness.outcomes[0].detail


async def test_a_limit_costs_no_try() -> None:
    stage = Stage(rate_per_s=0.001)
    for n in range(201):
        await stage.harness.feed(asked(n))
    assert len(stage.a.taken) + len(stage.b.taken) == 200
    (deferred,) = stage.harness.deferred
    assert deferred.why == "held_back"


async def test_a_crash_repeats_a_message_under_its_id() -> None:
    stage = Stage()
    stage.a.hangs = True
    await stage.harness.feed(asked())
    stage.a.hangs = False
    await stage.harness.crash()
    assert [message.id for message in stage.a.taken] == ["n-1/sms"] * 2
    assert stage.told == ["sent"]


def campaign(users: int, **fields: Any) -> e.CampaignSubmitted:
    made: dict[str, Any] = {
        "chunk_id": "spring/0",
        "campaign_id": "spring",
        "template": "news",
        "template_version": "v1",
        "priority": "marketing",
        "channels": ["email"],
        "params": "{}",
        "user_ids": [f"u-{n}" for n in range(users)],
        "happened_at": START,
        "send_at": None,
        "expires_at": None,
    }
    return e.CampaignSubmitted(**(made | fields))


class Pace:
    """A clock that sleeping moves, and the commands with their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent: list[tuple[float, int]] = []
        self.rows: list[e.SendNotification] = []
        self.lost = 0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds * 1_000

    async def settle(self, rows: Any) -> None:
        if self.lost:
            self.lost -= 1
            raise ConnectionError
        self.sent.append((self.now, len(rows)))
        self.rows += rows


async def test_a_campaign_comes_in_at_its_pace() -> None:
    pace = Pace()
    handler = Campaigns(pace, Bucket(10, 1, lambda: pace.now), pace.sleep)
    harness = Harness(CAMPAIGNS, handler)
    await harness.feed(campaign(1_000))
    assert len(pace.rows) == len({row.notification_id for row in pace.rows}) == 1_000
    assert [n for _, n in pace.sent] == [TOGETHER] * (1_000 // TOGETHER)
    gaps = [b - a for (a, _), (b, _) in zip(pace.sent, pace.sent[1:], strict=False)]
    assert min(gaps) >= 99.9


async def test_a_part_that_is_sent_again_reaches_everybody_once() -> None:
    pace = Pace()
    harness = Harness(CAMPAIGNS, Campaigns(pace, Bucket(1e6, 1, lambda: pace.now), pace.sleep))
    await harness.feed(campaign(TOGETHER))
    pace.lost = 1
    await harness.feed(campaign(3 * TOGETHER))
    await harness.advance(5_000)
    at = Desk()
    for row in pace.rows:
        at.ask(row)
    assert len(list(at.events(e.NotificationAccepted))) == 3 * TOGETHER
    assert len(list(at.events(e.NotificationRepeated))) == TOGETHER


def test_a_recipient_of_two_campaigns_gets_both() -> None:
    at = desk("u-0")
    first, second = campaign(1), replace(campaign(1), campaign_id="summer")
    ids = {at.ask(command(one, "u-0")).notification_id for one in (first, second, first)}
    assert len(ids) == 2
