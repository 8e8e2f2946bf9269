"""Judges rules as the log goes on, records what changes, and tells Alertmanager."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx
import orjson
import polars as pl
import structlog

from connectors.producer import EventProducer
from schemas.telemetry.events import ALERTS
from sinks.telemetry.alerts import StandingAlert
from sinks.telemetry.query import Span
from sinks.telemetry.rollups import Step
from streams.telemetry.alerting import (
    FIRING,
    MINUTE_MS,
    RESOLVED,
    Alert,
    Progress,
    Rule,
    annotated,
    horizon,
    judge,
    minutes,
)

GRACE_MS = 30_000
"""How long lines may take from a host to the log before an alert is judged without them."""
CATCH_UP_MS = 6 * 3_600_000
"""How far back an evaluator goes that was away; what is older is for `replay`."""
TOLD_FOR_MS = 15 * MINUTE_MS
"""How long the end of an alert is repeated, in case Alertmanager was away."""
ACTIVE_FOR_MS = 4 * MINUTE_MS
"""How long Alertmanager believes in an alert that is not repeated."""

log = structlog.get_logger("alerts")


class Counts(Protocol):
    """Lines by minute, service and level."""

    async def counts(self, span: Span, step: Step) -> pl.DataFrame: ...


class Stored(Protocol):
    """Alerts as they stand in the read model."""

    async def of_rule(self, rule: str) -> Sequence[StandingAlert]: ...


class Evaluator:
    """One evaluator of all rules."""

    def __init__(
        self,
        rules: Sequence[Rule],
        counts: Counts,
        producer: EventProducer,
        progress: Callable[[], Awaitable[Sequence[Progress]]],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._rules = rules
        self._counts = counts
        self._producer = producer
        self._progress = progress
        self._now_ms = now_ms
        self._standing: dict[str, dict[str, Alert]] = {rule.name: {} for rule in rules}
        self._judged_ms: dict[str, int] = {}

    async def resume(self, stored: Stored) -> None:
        """Take up where the recorded changes end. What was judged after the last change is judged
        again, to the same end.
        """
        for rule in self._rules:
            found = [
                Alert(
                    one.rule,
                    one.fingerprint,
                    one.state,
                    orjson.loads(one.labels),
                    one.value,
                    one.started_ms,
                    one.changed_ms,
                )
                for one in await stored.of_rule(rule.name)
            ]
            self._standing[rule.name] = {one.fingerprint: one for one in found}
            if found:
                self._judged_ms[rule.name] = max(one.changed_ms for one in found)

    @property
    def standing(self) -> list[tuple[Rule, Alert]]:
        """All alerts, with their rules."""
        return [(r, alert) for r in self._rules for alert in self._standing[r.name].values()]

    async def step(self) -> list[Alert]:
        """Judge every minute that is complete and was not judged yet; returns what changed, which
        is in the log by then. Raises `SinkError` and `ProducerError`: the same is done again.
        """
        until_ms = horizon(await self._progress(), self._now_ms(), GRACE_MS)
        return [change for rule in self._rules for change in await self._judge(rule, until_ms)]

    async def _judge(self, rule: Rule, until_ms: int) -> list[Alert]:
        oldest_ms = until_ms - CATCH_UP_MS
        after_ms = self._judged_ms.get(rule.name, until_ms - MINUTE_MS)
        if after_ms < oldest_ms:
            log.warning("not judged", rule=rule.name, from_ms=after_ms, to_ms=oldest_ms)
            after_ms = oldest_ms
        due = minutes(after_ms, until_ms)
        if not due:
            return []
        counts = await self._counts.counts(
            Span(due[0] - rule.window_minutes * MINUTE_MS, due[-1]), "minute"
        )
        standing, changes = self._standing[rule.name], list[Alert]()
        for at_ms in due:
            standing, changed = judge(rule, standing, counts, at_ms)
            changes += changed
        rows = [("AlertChanged", change.row()) for change in changes]
        await self._producer.send_many(ALERTS.name, rows)
        self._standing[rule.name], self._judged_ms[rule.name] = standing, due[-1]
        return changes


class Notifier:
    """Tells Alertmanager what is firing, again and again, as Prometheus does, and what has ended.

    Source: Alertmanager's API v2, `POST /api/v2/alerts`.
    """

    def __init__(self, client: httpx.AsyncClient, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._now_ms = now_ms
        self._ended_ms: dict[str, int] = {}
        self._fired: set[str] = set()

    async def tell(self, standing: Sequence[tuple[Rule, Alert]]) -> None:
        """Say how things stand. Raises `httpx.HTTPError`: say it again."""
        now_ms = self._now_ms()
        told = [
            _told(rule, alert, now_ms + ACTIVE_FOR_MS)
            for rule, alert in standing
            if alert.state == FIRING
        ]
        for rule, alert in standing:
            ended_ms = self._ended(alert, now_ms)
            if ended_ms is not None:
                told.append(_told(rule, alert, ended_ms))
        if told:
            answer = await self._client.post("/api/v2/alerts", json=told)
            answer.raise_for_status()

    def _ended(self, alert: Alert, now_ms: int) -> int | None:
        """When an alert that fired here ended, while that is still to be told."""
        mark = alert.fingerprint
        if alert.state == FIRING:
            self._fired.add(mark)
            self._ended_ms.pop(mark, None)
            return None
        if alert.state != RESOLVED or mark not in self._fired:
            return None
        ended_ms = self._ended_ms.setdefault(mark, now_ms)
        if now_ms - ended_ms > TOLD_FOR_MS:
            self._fired.discard(mark)
            del self._ended_ms[mark]
            return None
        return ended_ms


def _told(rule: Rule, alert: Alert, ends_ms: int) -> Mapping[str, Any]:
    return {
        "labels": dict(alert.labels),
        "annotations": annotated(rule, alert),
        "startsAt": _instant(min(alert.started_ms, ends_ms)),
        "endsAt": _instant(ends_ms),
    }


def _instant(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat()
