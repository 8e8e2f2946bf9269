"""The writer is killed while money moves: every key has one effect, nothing is lost or torn."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.demo import journal
from infra.local.ports import free_port
from schemas.apply import apply
from streams.runtime.settings import Settings, home
from tests import stack

pytestmark = pytest.mark.stack

KILLS, TRANSFERS, AT_ONCE = 2, 400, 12
WALLETS = [f"w{n}" for n in range(6)]


class Writer:
    """A worker process that is killed without a word and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copy(home() / "stack.json", folder)
        self.start()

    def start(self) -> None:
        self.port = free_port()
        with (self._folder / "worker.log").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streams", "payments", "--port", str(self.port)],
                env={**os.environ, "HEADRACE_HOME": str(self._folder)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    async def ready(self) -> None:
        async with httpx.AsyncClient() as client:
            while True:
                assert self.process.poll() is None, (self._folder / "worker.log").read_text()[
                    -3000:
                ]
                try:
                    answer = await client.get(f"http://127.0.0.1:{self.port}/readyz")
                    if answer.is_success:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.2)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Told:
    """What clients were told."""

    answers: int = 0
    reached: dict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    """Set once there are so many answers."""
    accepted: int = 0
    amounts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Account → what it got, less what it gave."""


async def verdict(client: httpx.AsyncClient, path: str, body: Any, key: str) -> httpx.Response:
    """Asked with the same key until there is a verdict."""
    while True:
        headers = {"Idempotency-Key": key, "Prefer": "wait=5"}
        answer = await client.post(path, json=body, headers=headers)
        if answer.status_code not in (202, 503):
            return answer


async def test_a_killed_writer_loses_and_repeats_nothing(tmp_path: Path) -> None:
    apply(Settings.read())
    writer, chance = Writer(tmp_path), random.Random(5)
    book = f"k{uuid.uuid4().hex[:10]}"
    try:
        await writer.ready()
        async with stack.api(tmp_path) as api:
            await opened(api.client, book)
            told = Told()
            killing = asyncio.create_task(kills(writer, told))
            await transfers(api.client, book, chance, told)
            await killing
    finally:
        writer.kill()
    found = await asyncio.to_thread(journal.read, Settings.read(), {book})
    assert (found.unbalanced, found.wrong, found.gaps()) == (0, 0, 0)
    assert found.events["TransferRecorded"] == told.accepted + 1
    assert not any(found.sums.values())
    for name in WALLETS:
        assert found.balances[book, name] == 10_000 + told.amounts[name] >= 0


async def opened(client: httpx.AsyncClient, book: str) -> None:
    """Wallets with 100.00 EUR each."""
    path = f"/v1/books/{book}/accounts"
    for name in (*WALLETS, "world"):
        side = {"side": "debit", "overdraft": None} if name == "world" else {}
        made = await verdict(
            client, path, {"account": name, "currency": "EUR", **side}, f"{book}{name}"
        )
        assert made.status_code == 201, made.text
    legs = [leg("world", name, 10_000) for name in WALLETS]
    made = await verdict(client, f"/v1/books/{book}/transfers", {"legs": legs}, f"{book}first")
    assert made.status_code == 201, made.text


async def transfers(
    client: httpx.AsyncClient, book: str, chance: random.Random, told: Told
) -> None:
    """Random transfers, some asked for twice at once."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> None:
        debit, credit = chance.sample(WALLETS, 2)
        amount = chance.randint(1, 6_000)
        body, key = {"legs": [leg(debit, credit, amount)]}, f"{book}-{n}"
        async with free:
            path = f"/v1/books/{book}/transfers"
            asked = [verdict(client, path, body, key) for _ in range(1 + (n % 5 == 0))]
            answers = await asyncio.gather(*asked)
        assert len({answer.status_code for answer in answers}) == 1
        assert answers[0].status_code in (201, 409), answers[0].text
        told.answers += 1
        told.reached[told.answers].set()
        if answers[0].status_code == 201:
            assert len({answer.content for answer in answers}) == 1
            told.accepted += 1
            told.amounts[debit] -= amount
            told.amounts[credit] += amount

    await asyncio.gather(*map(one, range(TRANSFERS)))


async def kills(writer: Writer, told: Told) -> None:
    """Kill the writer in the middle of its work, each time after a share of the answers."""
    for n in range(1, KILLS + 1):
        await told.reached[TRANSFERS * n // (KILLS + 1)].wait()
        assert told.answers < TRANSFERS, "all was over before the writer was killed"
        writer.kill()
        writer.start()
        await writer.ready()


def leg(debit: str, credit: str, amount: int) -> dict[str, Any]:
    return {"debit_account": debit, "credit_account": credit, "currency": "EUR", "amount": amount}
