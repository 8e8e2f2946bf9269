"""The worker is killed again and again: nothing accepted is lost, and repeats carry their id."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.local.ports import free_port
from schemas.apply import apply
from streams import catalog
from streams.runtime.settings import Settings, home
from tests import stack
from tests.notifications.shop import CODE, NEWS, ORDER, Shop, providers

pytestmark = [pytest.mark.stack, pytest.mark.slow]

AGENTS = [one.name for one in catalog.agents(catalog.load("notifications"))]
PATIENCE_S = 180.0
FINAL = {"sent", "delivered", "failed", "suppressed", "cancelled", "digested"}


@dataclass
class Worker:
    """The agents in one process that can be killed."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    async def start(self) -> None:
        """Start, and wait until it works."""
        self.port = free_port()
        command = [sys.executable, "-m", "streams", *AGENTS, "--port", str(self.port)]
        environment = {**os.environ, "HEADRACE_HOME": str(self.folder)}
        with (self.folder / "worker.log").open("ab") as out:
            self.process = subprocess.Popen(  # noqa: ASYNC220
                command, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        until_s = time.monotonic() + PATIENCE_S
        async with httpx.AsyncClient() as client:
            while time.monotonic() < until_s:
                assert self.process.poll() is None, (self.folder / "worker.log").read_text()[
                    -4_000:
                ]
                try:
                    answer = await client.get(f"http://127.0.0.1:{self.port}/readyz")
                    if answer.status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.1)
        raise TimeoutError

    def kill(self) -> None:
        """SIGKILL: no time to finish anything."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    apply(Settings.read())
    launched = home() / "stack.json"
    if launched.is_file():
        shutil.copy(launched, tmp_path)
    (tmp_path / "api").mkdir()
    made = Worker(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


async def accepted(shop: Shop, user: str, type_: str, key: str, **params: str) -> str:
    """Send until it is decided, as a client does; returns the id."""
    body = {"userId": user, "type": type_, "params": params, "idempotencyKey": key}
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        answer = await shop.client.post("/v1/notifications", json=body)
        if answer.status_code in {200, 202} and "id" in answer.json():
            return str(answer.json()["id"])
        await asyncio.sleep(0.2)
    raise TimeoutError(answer.text)


async def final(shop: Shop, id_: str) -> dict[str, Any]:
    """The notification in its final state."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        answer = await shop.client.get(f"/v1/notifications/{id_}")
        if answer.status_code == 200 and answer.json()["status"] in FINAL:
            return dict(answer.json())
        assert time.monotonic() < until_s, answer.text
        await asyncio.sleep(0.2)


async def test_nothing_accepted_is_lost(worker: Worker, tmp_path: Path) -> None:
    chance = random.Random(7)
    async with providers(tmp_path) as sending, stack.api(tmp_path / "api") as api:
        await worker.start()
        shop = Shop(api.client)
        shop.after = await shop.publish()
        users = [await shop.join(f"k{n}") for n in range(12)]
        ids: dict[str, str] = {}

        async def send(n: int) -> None:
            user, code = users[n % len(users)], n % 4 != 3
            params = {"code": str(n)} if code else {"order": str(n), "name": "x"}
            id_ = await accepted(shop, user, CODE if code else ORDER, f"k-{n}", **params)
            ids[id_] = CODE if code else ORDER

        campaign = {"campaignId": f"{shop.tag}-kill", "type": NEWS, "userIds": users,
                    "params": {"headline": shop.tag}}  # fmt: skip
        for turn in range(3):
            if turn == 1:
                answer = await shop.client.post("/v1/notification-campaigns", json=campaign)
                assert answer.status_code == 202
            sends = [asyncio.create_task(send(40 * turn + n)) for n in range(40)]
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            worker.kill()
            sending.sms_a.behaviour.change({"mode": ("down", "busy", "ok")[turn]})
            await worker.start()
            await asyncio.gather(*sends)
        assert len(ids) == 120, "each key leads to one notification"
        states = {id_: await final(shop, id_) for id_ in ids}
        assert {state["status"] for state in states.values()} == {"sent"}
        expected = {f"tok-{user}" for user in users}
        until_s = time.monotonic() + PATIENCE_S
        while not expected <= {m["to"] for m in sending.taken() if m["text"] == shop.tag}:
            assert time.monotonic() < until_s
            await asyncio.sleep(0.2)
    taken = sending.taken()
    times = Counter(message["id"] for message in taken)
    contents = {(message["id"], message["to"], message["text"]) for message in taken}
    assert len(contents) == len(times), "what is sent again under an id is the same"
    news = Counter(m["to"] for m in {m["id"]: m for m in taken}.values() if m["text"] == shop.tag)
    assert {token: news[token] for token in expected} == dict.fromkeys(expected, 1)
    for id_, state in states.items():
        for delivery in state["deliveries"]:
            assert times[delivery["id"]] >= 1, id_
