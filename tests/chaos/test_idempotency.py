"""One key, one effect: fifty requests at once, and deaths at every moment before the reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.payments.events import COMMANDS
from tests.chaos import crash
from tests.chaos.processes import Worker, until
from tests.chaos.rig import Rig
from tests.chaos.test_ledger import recounted, reported
from tests.chaos.web import SUBJECT, api

pytestmark = [pytest.mark.stack, pytest.mark.slow]

AT_ONCE = 50
BOOK = "main"
TRIES_MAX = 40


class Told:
    """What clients of the API were told, as `recounted` wants it."""

    def __init__(self) -> None:
        self.acks: list[dict[str, Any]] = []

    def take(self, key: str, answer: httpx.Response) -> None:
        topic, partition, offset = answer.headers["Headrace-Position"].split("/")
        self.acks.append({
            "key": f"{SUBJECT}\n{BOOK}\n{key}", "status": answer.status_code, "body": answer.json(),
            "topic": topic, "partition": int(partition), "offset": int(offset),
            "replay": answer.headers.get("Idempotent-Replay") == "true",
        })  # fmt: skip

    def write(self, path: Path) -> Path:
        """One JSON object a line."""
        path.write_text("".join(json.dumps(ack) + "\n" for ack in self.acks))
        return path


@asynccontextmanager
async def bank(rig: Rig, told: Told) -> AsyncIterator[httpx.AsyncClient]:
    """The API over the run's ledger, with two accounts and money on one of them."""
    async with api(rig, rig.deciders["payments"].commands, instead_of=COMMANDS.name) as client:
        for account, side, overdraft in (("world", "debit", None), ("alice", "credit", 0)):
            body = {"account": account, "currency": "EUR", "side": side, "overdraft": overdraft}
            await verdict(client, told, f"open-{account}", body, path="accounts")
        await verdict(client, told, "funds", moved(10_000, "world", "alice"))
        yield client


def moved(amount: int, debit: str = "alice", credit: str = "world") -> dict[str, Any]:
    """The body of a transfer."""
    leg = {"debit_account": debit, "credit_account": credit, "currency": "EUR", "amount": amount}
    return {"legs": [leg]}


async def post(
    client: httpx.AsyncClient, key: str, body: Any, path: str = "transfers"
) -> httpx.Response:
    headers = {"Idempotency-Key": key, "Prefer": "wait=5"}
    return await client.post(f"/v1/books/{BOOK}/{path}", json=body, headers=headers)


async def verdict(
    client: httpx.AsyncClient, told: Told, key: str, body: Any, path: str = "transfers"
) -> httpx.Response:
    """Ask as a client should: again with the same key, until there is a verdict."""
    for _ in range(TRIES_MAX):
        answer = await post(client, key, body, path)
        if answer.status_code not in (202, 503):
            assert answer.status_code == 201, answer.text
            told.take(key, answer)
            return answer
    raise AssertionError(f"no verdict on {key}")


async def test_fifty_requests_with_one_key_are_one(rigs: Callable[..., Rig]) -> None:
    rig, told = rigs(32), Told()
    rig.create("payments")
    rig.ready(rig.worker("payments"))
    async with bank(rig, told) as client:
        for round_ in range(3):
            key = f"once-{round_}"
            asked = (verdict(client, told, key, moved(7)) for _ in range(AT_ONCE))
            answers = await asyncio.gather(*asked)
            assert len({answer.content for answer in answers}) == 1
            assert len({answer.headers["Headrace-Position"] for answer in answers}) == 1
            replays = sum("Idempotent-Replay" in answer.headers for answer in answers)
            rig.seen["replays"] += replays
            assert replays == AT_ONCE - 1, "one was the first"
            other = await post(client, key, moved(8))
            assert (other.status_code, other.json()["type"]) == (
                422,
                "urn:headrace:problem:key-reused",
            )
            rig.seen["key refused"] += 1
    found = recounted(rig, told)
    assert found["effect"] == 3 + 3, "two accounts, funds, and each key once"
    reported(rig, "T19 one key at once", found, "replays", "key refused", requests=3 * AT_ONCE)


async def test_a_key_outlives_every_death_before_its_reply(rigs: Callable[..., Rig]) -> None:
    rig, told = rigs(33, kafka_config={"session.timeout.ms": "6000"}), Told()
    rig.create("payments")
    points = list(crash.POINTS)
    workers = [rig.worker("payments", dies=points[0])]
    rig.ready(*workers)
    async with bank(rig, told) as client:
        for point, following in zip(points, [*points[1:], None], strict=True):
            key = f"key{crash.mark(point)}"
            asked = [asyncio.create_task(verdict(client, told, key, moved(7))) for _ in range(5)]
            later = asyncio.create_task(asked_later(client, rig, key))
            await asyncio.to_thread(died, workers[-1])
            rig.faults[f"died when {point}"] += 1
            workers.append(rig.worker("payments", dies=following))
            answers = await asyncio.gather(*asked)
            assert len({answer.content for answer in answers}) == 1
            assert (await later).content == answers[0].content
            again = await verdict(client, told, key, moved(7))
            assert again.content == answers[0].content
            assert again.headers["Idempotent-Replay"] == "true"
            assert (await post(client, key, moved(8))).status_code == 422
    found = recounted(rig, told)
    assert found["effect"] == 3 + len(points)
    rig.seen["replays"] = found["replays"]
    reported(rig, "T19 deaths before the reply", found, "replays", "verdict fetched later")


def died(worker: Worker) -> None:
    """Wait for its end, by its own hand."""
    assert until(lambda: worker.process.poll() is not None, 60, "it dies")
    assert worker.process.returncode == -9, worker.tail()


async def asked_later(client: httpx.AsyncClient, rig: Rig, key: str) -> httpx.Response:
    """A request that does not wait, and asks for its verdict where it was told to."""
    headers = {"Idempotency-Key": key, "Prefer": "respond-async"}
    path = f"/v1/books/{BOOK}/transfers"
    taken = await client.post(path, json=moved(7), headers=headers)
    assert taken.status_code == 202
    for _ in range(600):
        answer = await client.get(taken.headers["Location"])
        if answer.status_code != 202:
            assert answer.status_code == 201, answer.text
            rig.seen["verdict fetched later"] += 1
            return answer
        await asyncio.sleep(0.2)
    raise AssertionError("never told")
