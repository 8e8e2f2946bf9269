"""Webhooks through the whole product: kills, a rebuild meanwhile, a receiver down, pulling."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from itertools import count
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

pytestmark = [pytest.mark.stack, pytest.mark.asyncio(loop_scope="module")]

AGENTS = [one.name for one in catalog.agents(SYSTEM)]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PATIENCE_S = 120.0
MESSAGES, KILLS = (1_000, 4) if os.environ.get("CHAOS_FULL") else (72, 1)
KEYS = 6
REFUSED_OF = 78
AT_ONCE = 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[stack.Api]:
    apply(Settings.read())
    async with stack.api(tmp_path_factory.mktemp("api")) as made:
        made.client.headers["Prefer"] = "wait=30"
        yield made


class Running:
    """The worker, which tests may kill and start again."""

    def __init__(self, folder: Path, until_the_end: ExitStack) -> None:
        self._folder, self._running = folder, until_the_end
        self.start()

    def start(self) -> None:
        self._process = self._running.enter_context(stack.worker(self._folder, *AGENTS))

    def kill(self) -> None:
        """SIGKILL: no time to finish anything."""
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.setenv("HEADRACE_OUTBOUND__ALLOW", '["127.0.0.0/8"]')
        yield Running(tmp_path_factory.mktemp("worker"), running)


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


async def pulled(api: stack.Api, tenant: str, count: int) -> list[str]:
    """The ids of so many messages, by the cursor, in the order of the log."""
    found: list[str] = []
    cursor = 0
    while len(found) < count:
        params = {"cursor": cursor, "limit": 50}
        page = (await api.read(f"/v1/webhooks/{tenant}/messages", **params)).json()
        found += [one["id"] for one in page["items"]]
        cursor = page["next"]
    return found


async def test_a_receiver_that_was_down_gets_all_in_order_and_repeats_are_known(
    api: stack.Api, worker: Running
) -> None:
    """T of the system: FIFO key, no id missing, repeats carry a seen id; others are not delayed."""
    tenant = f"t{uuid.uuid4().hex[:8]}"
    base = f"/v1/webhooks/{tenant}"
    down, other = Receiver(status=500), Receiver()
    async with receivers(down, other):
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
        assert await pulled(api, tenant, len(ids)) == ids
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


class Shaky:
    """Refuses every thirteenth of the first messages, once."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def __call__(self, one: Received) -> int:
        n, again = int(one.body[5:-1]), one.id in self.seen
        self.seen.add(one.id)
        return 503 if n % 13 == 0 and n < REFUSED_OF and not again else 200


async def test_a_killed_worker_loses_nothing_and_keeps_the_order_of_keys(
    api: stack.Api, worker: Running
) -> None:
    """Killed in the midst of its work, and the read model made anew while messages go on coming."""
    tenant = f"k{uuid.uuid4().hex[:8]}"
    free, shaky = Receiver(), Receiver(decide=Shaky())
    ids: dict[str, int] = {}
    todo, enough = count(), asyncio.Event()

    async def send() -> None:
        while (n := next(todo)) < MESSAGES or not enough.is_set():
            ids[await publish(api, tenant, n, f"k{n % KEYS}")] = n
            await asyncio.sleep(0.2 * (n >= MESSAGES))

    async with receivers(free, shaky):
        await join(api, tenant, "free", free.url)
        await join(api, tenant, "shaky", shaky.url, ordered=True)
        async with asyncio.TaskGroup() as sending:
            for _ in range(AT_ONCE):
                sending.create_task(send())
            for n in range(1, KILLS + 1):
                wanted = MESSAGES * n // (KILLS + 2)
                await until(lambda wanted=wanted: len(free.got) >= wanted, lambda: free.ids)  # type: ignore[misc]
                worker.kill()
                await asyncio.to_thread(worker.start)
            await asyncio.to_thread(rebuilt)
            enough.set()
        await until(lambda: set(free.ids) == set(shaky.ids) == set(ids), lambda: shaky.ids)
    for one in (free, shaky):
        told = {id_: b'{"n":%d}' % n for id_, n in ids.items()}
        assert all(call.body == told[call.id] for call in one.got), "a repeat is the same"
    firsts = list(dict.fromkeys(shaky.ids))
    order = await pulled(api, tenant, len(ids))
    assert set(order) == set(ids), "a key leads to one message"
    for key in range(KEYS):
        own = [id_ for id_ in order if ids[id_] % KEYS == key]
        assert [id_ for id_ in firsts if ids[id_] % KEYS == key] == own
