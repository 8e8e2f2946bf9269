"""Webhooks through the whole product: a receiver that is down, an order key, a restart, pulling."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from connectors import webhooks as standard
from schemas.apply import apply
from streams import catalog
from streams.runtime.settings import Settings
from tests import stack
from tests.webhooks.receivers import Receiver, receivers

pytestmark = [pytest.mark.stack, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

AGENTS = [one.name for one in catalog.agents(catalog.load("webhooks"))]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PATIENCE_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[stack.Api]:
    apply(Settings.read())
    async with stack.api(tmp_path_factory.mktemp("api")) as made:
        made.client.headers["Prefer"] = "wait=30"
        yield made


@pytest.fixture(autouse=True)
def _local_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_OUTBOUND__ALLOW", '["127.0.0.0/8"]')


async def until(good: Callable[[], bool], said: Callable[[], Any]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not good():
        assert time.monotonic() < until_s, said()
        await asyncio.sleep(0.05)


async def join(api: stack.Api, tenant: str, id_: str, url: str, **more: Any) -> None:
    body = {"id": id_, "url": url, "secret": SECRET, **more}
    answer = await api.client.post(f"/v1/webhooks/{tenant}/endpoints", json=body)
    assert answer.status_code == 201, answer.text


async def publish(api: stack.Api, tenant: str, n: int, order_key: str = "") -> str:
    body = {"eventType": "a.b", "payload": {"n": n}, "orderKey": order_key}
    headers = {"Idempotency-Key": f"{tenant}-{n}"}
    answer = await api.client.post(f"/v1/webhooks/{tenant}/messages", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    assert answer.json()["sequence"] == n
    api.written |= stack.offsets(answer.headers["Headrace-Position"])
    return str(answer.json()["id"])


async def test_a_receiver_that_was_down_gets_all_in_order_and_repeats_are_known(
    api: stack.Api, tmp_path: Path
) -> None:
    """T of the system: FIFO key, no id missing, repeats carry a seen id; others are not delayed."""
    tenant = f"t{uuid.uuid4().hex[:8]}"
    down, other = Receiver(status=500), Receiver()
    async with receivers(down, other):
        with stack.worker(tmp_path, *AGENTS):
            await join(api, tenant, "down", down.url, ordered=True)
            await join(api, tenant, "other", other.url)
            ids = [await publish(api, tenant, n, "k") for n in range(12)]
            await until(lambda: set(other.ids) == set(ids) and bool(down.got), lambda: other.ids)
            assert set(down.ids) == {ids[0]}  # its lane waits for the first
            down.status = 200
            await until(lambda: set(down.ids) == set(ids), lambda: down.ids)
        firsts = list(dict.fromkeys(down.ids))
        assert firsts == ids
        assert set(down.ids) == set(ids)
        for one in down.got:
            now_s = int(one.headers["webhook-timestamp"])
            standard.verify([standard.key_of(SECRET)], one.headers, one.body, now_s)
        with stack.worker(tmp_path, *AGENTS):
            base = f"/v1/webhooks/{tenant}"
            pulled: list[str] = []
            cursor = 0
            while len(pulled) < len(ids):
                page = (await api.read(f"{base}/messages", cursor=cursor, limit=5)).json()
                pulled += [one["id"] for one in page["items"]]
                cursor = page["next"]
            assert pulled == ids
            again = f"{base}/messages/{ids[3]}/endpoints/other/resend"
            before = len(other.got)
            assert (await api.client.post(again)).status_code == 202
            await until(lambda: len(other.got) > before, lambda: other.ids)
            assert other.ids[-1] == ids[3]
            one = (await api.read(f"{base}/messages/{ids[0]}")).json()
            statuses = [a["status"] for a in one["attempts"] if a["endpoint_id"] == "down"]
            assert (statuses[0], statuses[-1]) == ("failed", "delivered")
            assert (await api.client.post(f"{base}/endpoints/other/disable")).status_code == 200
            missed = [await publish(api, tenant, n) for n in range(12, 15)]
            assert (await api.client.post(f"{base}/endpoints/other/enable")).status_code == 200
            body = {"since": 0}
            answer = await api.client.post(f"{base}/endpoints/other/recover", json=body)
            assert answer.status_code == 202, answer.text
            await until(lambda: set(missed) <= set(other.ids), lambda: other.ids)
            assert sorted(i for i in other.ids if i in missed) == sorted(missed)
