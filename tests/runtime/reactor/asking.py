"""A small system for tests: questions asked of a provider, answers recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import polars as pl

from streams.runtime.reactor.rules import (
    Breaker,
    GiveUp,
    Limits,
    Reactor,
    Retry,
    RetryPolicy,
    Route,
    Task,
)
from streams.runtime.topic import RecordType, Topic

DELAYS_MS = (300, 1_000)


@dataclass(frozen=True)
class Asked:
    question: str
    target: str
    provider: str = ""
    tenant: str = ""


@dataclass(frozen=True)
class Answered:
    question: str
    task: str
    result: str
    attempt: int


def _record(row: type, **types: str) -> RecordType:
    name = f"headrace.test.{row.__name__}"
    fields = [{"name": field, "type": kind} for field, kind in types.items()]
    avsc = json.dumps({"type": "record", "name": name, "fields": fields})
    polars = {"string": pl.String, "int": pl.Int32}
    return RecordType(name, avsc, {field: polars[kind] for field, kind in types.items()}, row)


ASKED = _record(Asked, question="string", target="string", provider="string", tenant="string")
ANSWERED = _record(Answered, question="string", task="string", result="string", attempt="int")


def topics(run: str, partitions: int = 2, name: str | None = None) -> tuple[Topic, Topic]:
    """Questions and answers."""
    shared = {"key": "question", "event_time": None, "owner": "tests", "doc": "For tests."}
    retries = {name or f"{run}-asker": DELAYS_MS}
    asked = Topic(f"{run}.asked", (ASKED,), partitions=partitions, retries=retries, **shared)
    return asked, Topic(f"{run}.answered", (ANSWERED,), partitions=1, **shared)


class Asker:
    """Asks over HTTP: 2xx is an answer, 410 is for good, all else is to be tried again."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    def route(self, record: str, row: Asked) -> Route | None:
        if row.target == "nobody":
            return None
        return Route(row.tenant, row.target, row.provider)

    async def act(self, task: Task) -> Answered:
        answer = await self._client.post(f"/{task.row.target}", content=task.id)
        if answer.status_code == 410:
            raise GiveUp("gone")
        if answer.status_code >= 300:
            raise Retry(f"status {answer.status_code}")
        return Answered(task.row.question, task.id, "ok", task.attempt)

    def gave_up(self, task: Task, reason: str) -> Answered:
        return Answered(task.row.question, task.id, f"gave up: {reason}", task.attempt)


def reactor(run: str, provider: str, **more: Any) -> Reactor:
    """The reactor of a run, calling `provider` (a base URL)."""
    asked, answered = topics(run)

    @asynccontextmanager
    async def opened(settings: Any) -> AsyncIterator[Asker]:
        async with httpx.AsyncClient(base_url=provider, timeout=60, trust_env=False) as client:
            yield Asker(client)

    given: dict[str, Any] = {
        "retry": RetryPolicy(DELAYS_MS),
        "limits": Limits(per_target=4, timeout_ms=30_000),
        "breaker": Breaker(failures=3, open_ms=500, open_ms_max=1_000),
        **more,
    }
    return Reactor(f"{run}-asker", asked, opened, answered, **given)
