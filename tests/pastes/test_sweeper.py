"""The sweeper is dead while pastes expire: nothing is served, and later nothing is left.

Its worker is killed, so it has a file. 40 pastes by default; 1,000, and killed again while it
deletes, with CHAOS_FULL=1.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.cli import rebuild
from infra.local.ports import free_port
from infra.pastes import reconcile
from schemas.apply import apply
from sinks import digest
from sinks.open import open_sink
from sinks.pastes.objects import S3Objects
from streams.pastes import SYSTEM
from streams.pastes.rules import ORPHAN_MS_MIN
from streams.runtime.settings import Settings, home
from tests import stack
from tests.pastes.desk import AGENTS, TABLE, sha_of, upload
from tests.pastes.shop import PATIENCE_S, Shop

pytestmark = pytest.mark.stack

FULL = os.environ.get("CHAOS_FULL") == "1"
PASTES, TTL_S = (1_000, 60) if FULL else (40, 4)
AT_ONCE = 16


class Worker:
    """A worker of pastes that is killed without a word and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copy(home() / "stack.json", folder)

    async def start(self) -> None:
        port, log = self._launch()
        async with httpx.AsyncClient() as client:
            while True:
                assert self._process.poll() is None, log.read_text()[-3_000:]
                try:
                    if (await client.get(f"http://127.0.0.1:{port}/readyz")).is_success:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.2)

    def _launch(self) -> tuple[int, Path]:
        port = free_port()
        log = self._folder / "worker.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streams", *AGENTS, "--port", str(port)],
                env={**os.environ, "HEADRACE_HOME": str(self._folder)},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return port, log

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


async def some(count: int, work: Any) -> list[Any]:
    """`work(n)` for all n, a few at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def one(n: int) -> Any:
        async with free:
            return await work(n)

    return await asyncio.gather(*(one(n) for n in range(count)))


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not await check():
        assert time.monotonic() < until_s
        await asyncio.sleep(0.05)


async def test_pastes_that_expire_while_the_sweeper_is_dead(tmp_path: Path) -> None:
    """T: 0 served, 0 blobs left, as many tombstones as pastes; and the table can be rebuilt."""
    settings, run = Settings.read(), uuid.uuid4().hex
    await asyncio.to_thread(apply, settings)
    (tmp_path / "worker").mkdir()
    worker = Worker(tmp_path / "worker")
    await worker.start()
    try:
        async with stack.api(tmp_path) as opened, S3Objects.open(settings) as objects:
            shop = Shop(opened)
            begun_s = time.monotonic()
            pastes = await some(PASTES, lambda n: shop.made(f"{run} {n}", expiresIn=TTL_S))
            shas = {sha_of(f"{run} {n}") for n in range(PASTES)}
            assert (await shop.read(pastes[-1], "/raw")).text == f"{run} {PASTES - 1}"
            worker.kill()

            async def left() -> int:
                return len({name.partition("/")[0] for name in await objects.names()} & shas)

            killed_s = time.monotonic()
            await asyncio.sleep(TTL_S + 1)

            async def fewer(than: int) -> bool:
                return await left() < than

            served = await some(PASTES, lambda n: shop.client.get(f"/v1/pastes/{pastes[n]}"))
            assert Counter(one.status_code for one in served) == {410: PASTES}
            before = await left()
            assert before == PASTES or killed_s - begun_s > TTL_S  # on a very slow machine

            await worker.start()
            if FULL:
                await until(lambda: fewer(before))
                worker.kill()
                await worker.start()
            tombstones = await some(PASTES, lambda n: shop.tombstone(pastes[n], "purged"))
            assert {(one["ended"], one["content"]) for one in tombstones} == {("expired", "purged")}
            assert len({one["position"] for one in tombstones}) == PASTES
            assert await left() == 0
            await orphan_goes(objects, settings, run)
    finally:
        worker.kill()
    await asyncio.to_thread(rebuilt, settings)


async def orphan_goes(objects: S3Objects, settings: Settings, run: str) -> None:
    """What a server left that died between storing and asking is found, once it is old enough."""
    now_ms = time.time_ns() // 1_000_000
    old, young = (upload(sha_of(run), now_ms - age) for age in (ORPHAN_MS_MIN + 1_000, 0))
    for name in (old, young):
        await objects.put(name, b"x")
    found = await reconcile.run(settings, now_ms)
    assert found.dropped >= 1
    assert found.young >= 1

    async def gone() -> bool:
        return await objects.get(old) is None

    await until(gone)
    assert (await objects.get(old), await objects.get(young)) == (None, b"x")
    await objects.delete(young)


def rebuilt(settings: Settings) -> None:
    """The table is the same, built from the log anew."""
    sink = open_sink(TABLE.store, TABLE.model, settings)
    try:
        before = digest.digest(sink, sink.live_version())
        rebuild.run(SYSTEM, TABLE, sink, settings, verify=True)
        assert digest.digest(sink, sink.live_version()) == before
    finally:
        sink.close()
