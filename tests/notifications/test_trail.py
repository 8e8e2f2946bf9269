"""What is shown: timelines, recipients and templates, folded from the log and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

from schemas.notifications import events as e
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.notifications.reader import NotificationsReader, TemplatesReader
from streams.notifications import SYSTEM
from streams.runtime.decider.records import CommandRejected
from streams.runtime.projection import Projection
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.notifications.desk import DAY, HOUR, Desk, T, desk, send, wants

TRAIL, DELIVERIES, TEMPLATES = SYSTEM.projections


def memory(model: ReadModel) -> MemorySink:
    return MemorySink(model, MemoryStore())


class MemoryReader:
    """The part of `RedisReader` that is used, over what a harness has stored."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    async def bucket(self, table: str, bucket: Mapping[str, Any]) -> pl.DataFrame:
        rows = self._harness.rows(table)
        return rows.filter(*(pl.col(name) == value for name, value in bucket.items()))


def folded(projection: Projection, rows: list[Any]) -> Harness:
    harness = Harness(projection, memory(projection.model))
    harness.send(*rows)
    harness.run()
    return harness


def reader(at: Desk, *reports: e.DeliveryReported) -> NotificationsReader:
    trail = folded(TRAIL, [event.row for event in at.log])
    deliveries = folded(DELIVERIES, list(reports))
    return NotificationsReader(MemoryReader(trail), MemoryReader(deliveries))  # type: ignore[arg-type]


def report(status: str, provider: str = "", at: int = T, channel: str = "email") -> Any:
    return e.DeliveryReported(
        "n-1", f"n-1/{channel}", channel, status, provider, "m-1", "", at  # type: ignore[arg-type]
    )  # fmt: skip


async def test_a_timeline_tells_all_steps_and_the_preferences_in_force() -> None:
    at = desk(quiet_scope="marketing", locale="fr")
    at.ask(send(priority="marketing", channels=["email", "sms"]), T + 22 * HOUR)
    at.ask(wants(opt_outs=[e.OptOut(channel="sms", category="marketing")]))
    at.pass_to(T + DAY + 12 * HOUR)
    at.ask(wants())
    source = reader(at, report("sent", "mail-a", T + 2 * DAY), report("delivered", "mail-a"))
    found = await source.notification("n-1")
    assert found is not None
    assert [step.step for step in found.timeline] == ["delivered", "held", "released", "sent"]
    assert (found.status, found.template, found.priority) == (
        "delivered", "order_shipped", "marketing",
    )  # fmt: skip
    assert found.preferences_revision == 2
    assert found.preferences is not None
    assert found.preferences["opt_outs"] == [{"channel": "sms", "category": "marketing"}]
    released = found.timeline[2].detail
    assert released["suppressed"] == [{"channel": "sms", "reason": "opted_out"}]
    assert await source.notification("n-2") is None


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([], "sending"),
        ([report("failed")], "failed"),
        ([report("failed"), report("sent", "a")], "sent"),
        ([report("sent", "a"), report("failed", "a")], "failed"),
        ([report("failed", "a"), report("sent", "a")], "failed"),
        ([report("delivered", "a"), report("sent", "a")], "delivered"),
        ([report("delivered", "a"), report("failed", "a")], "delivered"),
        ([report("expired")], "failed"),
    ],
)
async def test_whose_word_counts(reports: list[Any], expected: str) -> None:
    at = desk()
    at.ask(send())
    found = await reader(at, *reports).notification("n-1")
    assert found is not None
    assert found.status == expected


async def test_cancelled_and_repeated_notifications_say_so() -> None:
    at = desk()
    at.ask(send("n-1", send_at=T + HOUR, idempotency_key="k"))
    at.ask(send("n-2", send_at=T + HOUR, idempotency_key="k"))
    at.ask(e.CancelNotification("u", "n-1"))
    found = await reader(at).notification("n-1")
    assert found is not None
    assert found.status == "cancelled"
    assert [step.step for step in found.timeline] == ["scheduled", "repeated", "cancelled"]
    assert [row.id for row in await reader(at).listed("u")] == ["n-1"]


async def test_a_recipient_is_shown_as_it_is_now() -> None:
    at = desk()
    at.ask(e.RegisterDevice("u", "tok-2", "ios"))
    at.ask(e.RemoveDevice("u", "tok-u", "invalid"))
    at.ask(e.SetContact("u", "new@example.org", ""))
    at.ask(wants(locale="fr"))
    found = await reader(at).recipient("u")
    assert (found.email, found.phone) == ("new@example.org", "")
    assert found.devices == [{"token": "tok-2", "platform": "ios"}]
    assert found.preferences_revision == 2
    assert found.preferences is not None
    assert found.preferences["locale"] == "fr"
    nobody = await reader(at).recipient("v")
    assert (nobody.devices, nobody.preferences) == ([], None)


def everything() -> list[Any]:
    """A log with every event, and commands that were refused."""
    at = desk(quiet_scope="marketing")
    at.ask(send("n-1", idempotency_key="k"))
    at.ask(send("n-2", idempotency_key="k"))
    at.ask(send("n-3", send_at=T + HOUR))
    at.ask(e.CancelNotification("u", "n-3"))
    at.ask(send("n-4", digest_key="d", digest_window_ms=HOUR))
    at.ask(send("n-5", priority="marketing"), T + 22 * HOUR)
    at.ask(e.RegisterDevice("u", "tok-2", "ios"))
    at.ask(e.RemoveDevice("u", "tok-2", "invalid"))
    at.ask(e.RegisterDevice("u", "tok-2", "ios"))
    at.pass_to(T + 2 * DAY)
    rows = [event.row for event in at.log]
    return [*rows, CommandRejected("x", "not_pending", "", 409, -1), *rows[:3]]


def test_the_trail_is_the_same_for_all_batches_and_crashes() -> None:
    rows = everything()
    for seed in range(20):
        disturbed = assert_replay_deterministic(TRAIL, rows, seed, memory)
    assert disturbed.batches > 1
    harness = folded(TRAIL, rows)
    assert harness.counts == {"applied": len(rows) - 1, "filtered": 1}


def test_reports_are_the_same_for_all_batches_and_crashes() -> None:
    rows = [report(s, "a") for s in ("sent", "delivered", "sent", "failed") for _ in range(3)]
    for seed in range(10):
        assert_replay_deterministic(DELIVERIES, rows, seed, memory)
    assert folded(DELIVERIES, rows).rows("reports").height == 3


async def test_the_template_published_last_is_current_and_all_versions_stay() -> None:
    def version(name: str, text: str) -> e.TemplatePublished:
        content = e.Content(channel="sms", locale="en", subject="", text=text, html="")
        return e.TemplatePublished("t", name, "otp", "en", [content], 0, 60_000, T)

    rows = [version("a", "x"), version("b", "y"), version("a", "x")]
    for seed in range(10):
        assert_replay_deterministic(TEMPLATES, rows, seed, memory)
    source = TemplatesReader(MemoryReader(folded(TEMPLATES, rows)))  # type: ignore[arg-type]
    assert await source.template("t") == rows[0]
    assert await source.template("t", "b") == rows[1]
    assert await source.template("t", "c") is None
    assert json.loads(folded(TEMPLATES, rows).rows("versions")["body"][0])["version"] == "a"
