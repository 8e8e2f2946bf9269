"""Notifications through the whole product: API, decider, lanes, providers, callbacks, timeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from streams import catalog
from tests import stack
from tests.notifications.shop import CODE, Providers, Shop, providers

pytestmark = pytest.mark.stack

AGENTS = [one.name for one in catalog.agents(catalog.load("notifications"))]
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worker")


@pytest.fixture
async def shop(folder: Path, tmp_path: Path) -> AsyncIterator[tuple[Shop, Providers]]:
    async with providers(folder) as sending:
        with stack.worker(folder, *AGENTS):
            async with stack.api(tmp_path) as api:
                made = Shop(api.client)
                place = await made.publish()
                await api.client.get(
                    f"/v1/notification-templates/{CODE}", headers={"Headrace-After": place}
                )
                yield made, sending


async def timeline(shop: Shop, id_: str, *wanted: str) -> dict[str, Any]:
    """The notification once it has one of the wanted statuses."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        answer = await shop.client.get(f"/v1/notifications/{id_}")
        if answer.status_code == 200 and answer.json()["status"] in wanted:
            return answer.json()
        assert time.monotonic() < until_s, answer.text
        await asyncio.sleep(0.05)


async def test_it_works(shop: tuple[Shop, Providers]) -> None:
    at, sending = shop
    user = await at.join("ada", locale="de-AT")
    told = await at.send(user, CODE, {"code": "123456"})
    assert told["status"] == "released"
    found = await timeline(at, told["id"], "sent")
    (message,) = sending.of(told["id"])
    assert message["text"] == "Ihr Code lautet 123456."
    assert [step["step"] for step in found["timeline"]] == ["released", "sent"]
