"""Rules in at the API, requests limited, decisions through Kafka and out at the API."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from infra.limiter import past
from schemas.limiter.rules import Rule
from streams.limiter.replay import tried
from streams.runtime.settings import Settings
from tests import stack

pytestmark = pytest.mark.stack

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), "limiter-decided"):
        yield


@pytest.fixture
async def api(worker: None, tmp_path: Any) -> AsyncIterator[stack.Api]:
    async with stack.api(tmp_path) as opened:
        yield opened


@pytest.fixture
async def rule_id(api: stack.Api) -> AsyncIterator[str]:
    """A rule of ten requests an hour for one path that only this test asks for."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    body = {
        "algorithm": "SLIDING_WINDOW", "limit": 10, "windowMs": 3_600_000,
        "route": f"/v1/limiter-{name}", "weights": [{"route": f"/v1/limiter-{name}/x", "units": 3}],
    }  # fmt: skip
    sent = await api.client.put(f"/v1/limiter/rules/{name}", json=body)
    assert sent.status_code == 202, sent.text
    after = {"Headrace-After": sent.headers["Headrace-Position"], "Prefer": "wait=10"}
    shown = await api.client.get(f"/v1/limiter/rules/{name}", headers=after)
    assert shown.status_code == 200, shown.text
    assert shown.json()["limit"] == 10
    yield name
    gone = await api.client.delete(f"/v1/limiter/rules/{name}")
    after = {"Headrace-After": gone.headers["Headrace-Position"], "Prefer": "wait=10"}
    assert (await api.client.get(f"/v1/limiter/rules/{name}", headers=after)).status_code == 404


async def test_requests_are_limited_logged_counted_and_tried_again(
    api: stack.Api, rule_id: str
) -> None:
    began = int(time.time() * 1_000) - MINUTE_MS
    path = f"/v1/limiter-{rule_id}"
    statuses = [(await api.client.get(path)).status_code for _ in range(8)]
    statuses += [(await api.client.get(f"{path}/x")).status_code for _ in range(2)]
    assert statuses == [404] * 8 + [429] * 2  # nobody is there; 8 + 3 are more than 10
    asked = {"rules": [rule_id], "key": "somebody", "cost": 4}
    allowed = [await api.client.post("/v1/limiter/allow", json=asked) for _ in range(3)]
    assert [answer.status_code for answer in allowed] == [200, 200, 429]
    assert allowed[1].json()["remaining"] == 2

    expected = {"admitted": 10, "refused": 3, "units": 16}
    span = {"from": began // MINUTE_MS * MINUTE_MS, "to": began + 10 * MINUTE_MS}
    async with asyncio.timeout(60):
        while await _counted(api, rule_id, span) != expected:  # noqa: ASYNC110 - a store
            await asyncio.sleep(0.2)

    until = int(time.time() * 1_000) + MINUTE_MS
    rows = await asyncio.to_thread(past.decisions, Settings.read(), began, until)
    shown = (await api.client.get(f"/v1/limiter/rules/{rule_id}")).json()
    rule = Rule.of(
        {"rule_id": rule_id, **past.RuleInput.model_validate(_input(shown)).model_dump()}
    )
    same = tried(rule, rows)
    assert (len(same.ids), same.refused, same.changed) == (13, 3, 0)
    stricter = tried(Rule.of({**rule.row(), "limit": 5}), rows)
    assert stricter.refused == 3 + 2 + 2  # of ten by three, and of two by one


def _input(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if name != "ruleId"}


async def _counted(api: stack.Api, rule_id: str, span: dict[str, int]) -> dict[str, int]:
    answer = await api.client.get(f"/v1/limiter/rules/{rule_id}/decisions", params=span)
    assert answer.status_code == 200, answer.text
    return {
        name: sum(minute[name] for minute in answer.json())
        for name in ("admitted", "refused", "units")
    }


async def test_bad_rules_are_refused_with_a_reason(api: stack.Api) -> None:
    good = {"algorithm": "SLIDING_WINDOW", "limit": 10, "windowMs": 1_000}
    for wrong, where in (
        ({"limit": 0}, "#/limit"),
        ({"slots": 7}, "#/slots"),
        ({"burst": 3}, "#/burst"),
        ({"per": ["MOON"]}, "#/per/0"),
        ({"limits": 3}, "#/limits"),
    ):
        answer = await api.client.put("/v1/limiter/rules/bad", json={**good, **wrong})
        assert answer.status_code == 422, (wrong, answer.text)
        assert answer.json()["errors"][0]["pointer"] == where
