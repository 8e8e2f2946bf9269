"""Finds objects that no paste needs: what a server left that died between storing and asking.

The table only saves questions. What it does not know is asked about, one command an object, and
the owner of the content decides: a paste that is made meanwhile comes before or after that, and
an object old enough to be found here is too old to make a paste of. So nothing is deleted here
either; what is dropped, the reactor deletes like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Protocol

from connectors.asking import Asks, Refused, open_asking
from schemas.pastes.contents import parts_of
from schemas.pastes.events import COMMANDS, ReviewObject
from sinks.pastes.objects import S3Objects
from sinks.pastes.reader import PastesReader
from streams.pastes.rules import ORPHAN_MS_MIN
from streams.runtime.settings import Settings

AT_ONCE: Final = 64


class Names(Protocol):
    """The object store."""

    async def names(self) -> list[str]:
        """The names of all contents."""
        ...


class Needs(Protocol):
    """The table of pastes."""

    async def needed(self, names: dict[str, str]) -> set[str]:
        """Of these objects (name → hash of its content), those that pastes need."""
        ...


@dataclass
class Found:
    """What became of all objects: `stored` is the sum of the others."""

    stored: int = 0
    needed: int = 0
    young: int = 0
    """Younger than an hour: a paste may still be made of them."""
    dropped: int = 0
    """Needed by nobody, and deleted from here on."""
    unknown: int = 0
    """Not named as contents are; left alone."""


async def reconcile(
    objects: Names, table: Needs, log: Asks, now_ms: int, *, dry_run: bool = False
) -> Found:
    """Ask about every old object that the table does not need. Raises `SinkError`, `NoVerdict`.

    With `dry_run` nothing is asked, and `dropped` is what would be asked about.
    """
    found = Found()
    old: dict[str, str] = {}
    for name in await objects.names():
        found.stored += 1
        parts = parts_of(name)
        if parts is None:
            found.unknown += 1
        elif now_ms - parts[1] < ORPHAN_MS_MIN:
            found.young += 1
        else:
            old[name] = parts[0]
    for some in _parts(sorted(old)):
        needed = await table.needed({name: old[name] for name in some})
        left = [name for name in some if name not in needed]
        answers = await asyncio.gather(
            *(_dropped(log, old[name], name) for name in ([] if dry_run else left))
        )
        dropped = len(left) if dry_run else sum(answers)
        found.dropped += dropped
        found.needed += len(some) - dropped
    return found


async def run(settings: Settings, now_ms: int, *, dry_run: bool = False) -> Found:
    """`reconcile` over the real stores and the real log."""
    async with AsyncExitStack() as opened:
        objects = await opened.enter_async_context(S3Objects.open(settings))
        table = await opened.enter_async_context(PastesReader.open(settings))
        log = await opened.enter_async_context(open_asking(settings, COMMANDS))
        return await reconcile(objects, table, log, now_ms, dry_run=dry_run)


async def _dropped(log: Asks, sha256: str, name: str) -> bool:
    try:
        await log.ask(COMMANDS, ReviewObject(sha256, name))
    except Refused:
        return False  # needed, by a paste that the table does not show yet
    return True


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)]
