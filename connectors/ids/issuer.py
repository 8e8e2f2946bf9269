"""Ids for one process: a lease from the log, kept alive while ids are wanted.

Between renewals ids cost no I/O. When the log is down, ids are made until the lease runs out, and
then refused: `NoVerdict`. Nothing is leased before the first id is wanted.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from connectors.asking import Asks, NoVerdict, Refused
from connectors.ids.generator import Behind, Generator, Ids, Lapsed, LogClock
from schemas.ids.events import COMMANDS, AllocateRange, EndLease, LeaseWorker, RenewLease
from streams.runtime.settings import Ids as IdSettings

WAIT_MS_MAX: Final = 100
"""A clock that is behind by no more is waited for; by more, ids are refused."""
TURN_S: Final = 0.0005
"""How long to sleep where a millisecond's 4,096 ids are used up."""


@dataclass
class Held:
    """A lease and what makes ids of it. `epoch` is the offset of the leasing in the log."""

    lease_id: str
    epoch: int
    generator: Generator
    clock: LogClock


class Issuer:
    """One process's ids. An async context manager; use it from one event loop."""

    def __init__(self, log: Asks, settings: IdSettings) -> None:
        self._log = log
        self._settings = settings
        self._holder = f"{socket.gethostname()}/{os.getpid()}"
        self._held: Held | None = None
        self._lock = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give back what is left of the lease, if the log hears it."""
        if self._renewing is not None:
            self._renewing.cancel()
        held, self._held = self._held, None
        if held is not None:
            worker, last_ms = held.generator.worker, held.generator.last_ms
            with suppress(NoVerdict, Refused):
                end = EndLease(self._settings.space, worker, held.lease_id, last_ms)
                await self._log.ask(COMMANDS, end)

    async def take(self, count: int) -> tuple[Ids, Held]:
        """`count` new ids, rising, and what they were made of.

        Raises `Behind` when the clock is far behind, `NoVerdict` when there is no lease and the
        log does not answer, and `Refused` when all worker numbers are leased.
        """
        async with self._lock:
            held = await self._lease()
            made = np.empty(count, np.int64)
            done = 0
            while done < count:
                try:
                    got = held.generator.issue_into(made[done:], held.clock)
                except Behind as late:
                    if late.by_ms > WAIT_MS_MAX:
                        raise
                    await asyncio.sleep(late.by_ms / 1_000)
                    continue
                except Lapsed:
                    # What this lease made stays made; the rest comes from the renewed one.
                    held = await self._renewed(held)
                    continue
                done += got
                if done < count:
                    await asyncio.sleep(TURN_S)
            self._renew_soon(held)
            return made, held

    async def _lease(self) -> Held:
        if self._held is None:
            lease_id = uuid.uuid4().hex
            settings = self._settings
            asked = LeaseWorker(settings.space, lease_id, self._holder, settings.ttl_ms)
            told = await self._log.ask(COMMANDS, asked, key=lease_id)
            generator = Generator(told["worker"], told["from_ms"], told["until_ms"])
            clock = LogClock(told["recorded_at"])
            self._held = Held(lease_id, told["offset"], generator, clock)
        return self._held

    async def _renewed(self, held: Held) -> Held:
        """The lease made longer, or another one where it was lost."""
        settings = self._settings
        asked = RenewLease(settings.space, held.generator.worker, held.lease_id, settings.ttl_ms)
        try:
            told = await self._log.ask(COMMANDS, asked)
        except Refused as refusal:
            if refusal.code != "lease_lost":
                raise
            self._held = None
            return await self._lease()
        held.generator.extend(told["until_ms"])
        held.clock.set(told["recorded_at"])
        return held

    def _renew_soon(self, held: Held) -> None:
        """Past half of the lease, renew it while ids are made."""
        left_ms = held.generator.until_ms - held.clock()
        busy = self._renewing is not None and not self._renewing.done()
        if left_ms < self._settings.ttl_ms // 2 and not busy:
            self._renewing = asyncio.create_task(self._renew_quietly(held))

    async def _renew_quietly(self, held: Held) -> None:
        """A failure is told to whoever needs an id after the lease has run out."""
        with suppress(NoVerdict, Refused):
            if self._held is held:
                await self._renewed(held)


class Numbers:
    """Numbers from ranges of the log: one question for `size` of them.

    A process that ends wastes the rest of its range and nothing else; while the log is down, the
    rest is still handed out.
    """

    def __init__(self, log: Asks, space: str, holder: str, size: int) -> None:
        self._log = log
        self._asked = AllocateRange(space, holder, size)
        self._left = range(0)
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """The next number. Raises `NoVerdict` and `Refused` when a new range is needed."""
        async with self._lock:
            if not self._left:
                told: Any = await self._log.ask(COMMANDS, self._asked)
                self._left = range(told["first"], told["first"] + told["size"])
            number = self._left[0]
            self._left = self._left[1:]
            return number
