"""Webhooks through the whole product: kills, a rebuild meanwhile, a receiver down, pulling."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from connectors import webhooks as standard
from infra.cli import rebuild
from schemas.apply import apply
from sinks.open import open_sink
from streams import catalog
from streams.runtime.settings import Settings
from streams.webhooks import SYSTEM
from tests import stack
from tests.webhooks.receivers import Received, Receiver, receivers

pytestmark = [pytest.mark.stack, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

AGENTS = [one.name for one in catalog.agents(SYSTEM)]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PATIENCE_S = 120.0
MESSAGES = 2_000 if os.environ.get("CHAOS_FULL") else 120
AT_ONCE = 8


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
    """Ask until it is decided, as a client does; returns the id."""
    body = {"eventType": "a.b", "payload": {"n": n}, "orderKey": order_key}
    headers = {"Idempotency-Key": f"{tenant}-{n}", "Prefer": "wait=5"}
    until_s = time.monotonic() + PATIENCE_S
    while True:
        answer = await api.client.post(
            f"/v1/webhooks/{tenant}/messages", json=body, headers=headers
        )
        if answer.status_code == 202 and "sequence" in answer.json():
            api.written |= stack.offsets(answer.headers["Headrace-Position"])
            return str(answer.json()["id"])
        assert answer.status_code in (202, 503), answer.text
        assert time.monotonic() < until_s, answer.text


def rebuilt() -> None:
    """The read model anew from the log, equal to the live one; raises `Differs`."""
    settings = Settings.read()
    for projection in SYSTEM.projections:
        sink = open_sink(projection.store, projection.model, settings)
        try:
            report = rebuild.run(SYSTEM, projection, sink, settings, verify=True)
        finally:
            sink.close()
        assert report.comparison


class Shaky:
    """Refuses every fifth message the first time."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, one: Received) -> int:
        again = one.id in self.seen
        self.seen.add(one.id)
        return 200 if again or int(one.body[5:-1]) % 5 else 503


async def test_a_killed_worker_loses_nothing_and_keeps_the_order_of_keys(
    api: stack.Api, tmp_path: Path
) -> None:
    """Killed twice in the middle of its work, with a rebuild while messages go on coming."""
    tenant = f"k{uuid.uuid4().hex[:8]}"
    free, shaky = Receiver(), Receiver(decide=Shaky())
    ids: dict[str, int] = {}
    todo = iter(range(MESSAGES))

    async def send() -> None:
        for n in todo:
            ids[await publish(api, tenant, n, f"k{n % 6}")] = n

    async def got(share: float) -> None:
        await until(lambda: len(set(free.ids)) >= MESSAGES * share, lambda: len(free.ids))

    async with receivers(free, shaky):
        with stack.worker(tmp_path, *AGENTS) as first:
            await join(api, tenant, "free", free.url)
            await join(api, tenant, "shaky", shaky.url, ordered=True)
            sending = [asyncio.create_task(send()) for _ in range(AT_ONCE)]
            await got(0.2)
            first.kill()
        with stack.worker(tmp_path, *AGENTS) as second:
            await got(0.4)
            second.kill()
        with stack.worker(tmp_path, *AGENTS):
            await asyncio.to_thread(rebuilt)
            await asyncio.gather(*sending)
            for one in (free, shaky):
                await until(lambda one=one: set(one.ids) == set(ids), lambda one=one: one.ids)  # type: ignore[misc]
    assert len(ids) == MESSAGES, "a key leads to one message"
    for one in (free, shaky):
        assert {(call.id, call.body) for call in one.got} == {
            (id_, b'{"n":%d}' % n) for id_, n in ids.items()
        }, "what is sent again under an id is the same"
    order = (await api.read(f"/v1/webhooks/{tenant}/messages", limit=500)).json()["items"]
    if len(order) < MESSAGES:
        return
    first_tries = list(dict.fromkeys(shaky.ids))
    for key in range(6):
        own = [one["id"] for one in order if one["order_key"] == f"k{key}"]
        assert [id_ for id_ in first_tries if id_ in set(own)] == own


async def test_a_receiver_that_was_down_gets_all_in_order_and_repeats_are_known(
    api: stack.Api, tmp_path: Path
) -> None:
    """T of the system: FIFO key, no id missing, repeats carry a seen id; others are not delayed."""
    tenant = f"t{uuid.uuid4().hex[:8]}"
    base = f"/v1/webhooks/{tenant}"
    down, other = Receiver(status=500), Receiver()
    async with receivers(down, other):
        with stack.worker(tmp_path, *AGENTS):
            await join(api, tenant, "down", down.url, ordered=True)
            await join(api, tenant, "other", other.url)
            ids = [await publish(api, tenant, n, "k") for n in range(8)]
            await until(lambda: set(other.ids) == set(ids) and bool(down.got), lambda: other.ids)
            assert set(down.ids) == {ids[0]}  # its lane waits for the first
            down.status = 200
            await until(lambda: set(down.ids) == set(ids), lambda: down.ids)
            assert list(dict.fromkeys(down.ids)) == ids
            for one in down.got:
                now_s = int(one.headers["webhook-timestamp"])
                standard.verify([standard.key_of(SECRET)], one.headers, one.body, now_s)
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
            shown = (await api.read(f"{base}/messages/{ids[0]}")).json()
            statuses = [a["status"] for a in shown["attempts"] if a["endpoint_id"] == "down"]
            assert (statuses[0], statuses[-1]) == ("failed", "delivered")
            assert (await api.client.post(f"{base}/endpoints/other/disable")).status_code == 200
            missed = [await publish(api, tenant, n) for n in range(8, 11)]
            assert (await api.client.post(f"{base}/endpoints/other/enable")).status_code == 200
            body = {"since": 0}
            answer = await api.client.post(f"{base}/endpoints/other/recover", json=body)
            assert answer.status_code == 202, answer.text
            await until(lambda: set(missed) <= set(other.ids), lambda: other.ids)
            assert sorted(i for i in other.ids if i in missed) == sorted(missed)
