"""A decider that starts with a large state. Usage: restart seed|start KEYS TAIL STORE FOLDER

`seed` decides KEYS + TAIL commands and leaves a snapshot from before the tail. `start` is timed
from the birth of its process to the moment it could decide the next command; its state is checked.
STORE is `disk` or `s3`; FOLDER is that of the first. Prints a `Restart`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from streams.runtime.decider.folded import KEYS
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.ports import Phase
from streams.runtime.decider.snapshot_store import LocalStore, S3Store, SnapshotStore
from streams.runtime.settings import Settings
from tests.bench.contenders.decide import LOOK_S, PATIENCE_S, owner_of, running
from tests.bench.transfers import decider

BUCKET = "headrace-bench-decide"
PREFIX = "deciders/"
T = TypeVar("T")


class Restart(msgspec.Struct, frozen=True):
    """Seconds since the process was born: the program is loaded, the snapshot is in memory, the
    tail is folded and the partition is owned. `accounts` and `keys` are what the state holds.
    """

    loaded_s: float
    restored_s: float
    owning_s: float
    folded: int
    accounts: int
    keys: int
    balance: int
    source_offset: int


def store_of(name: str, folder: Path) -> SnapshotStore:
    """Where the snapshots are."""
    return S3Store(Settings.read().s3, BUCKET) if name == "s3" else LocalStore(folder)


async def seed(keys: int, tail: int, store: SnapshotStore, folder: Path) -> Restart:
    """Decide everything; ends when the snapshot is there."""
    one = decider(keys + tail, snapshot_events=keys)
    async with running(one, store, folder) as deciding:
        owner = await _until(lambda: owner_of(deciding))
        await _until(lambda: owner.folded.filter.source_offset >= keys + tail - 1)
        await _until(lambda: store.list(PREFIX))
        return _told(owner, 0.0, 0.0)


async def start(keys: int, tail: int, store: SnapshotStore, folder: Path) -> Restart:
    """From nothing to owning the partition."""
    born_s = psutil.Process().create_time()
    loaded_s = time.time() - born_s
    async with running(decider(keys + tail), store, folder) as deciding:
        owner = await _until(lambda: owner_of(deciding))
        restored_s = time.time() - born_s
        await _until(lambda: owner.phase is Phase.OWNING)
        return _told(owner, loaded_s, restored_s, time.time() - born_s)


def _told(owner: Owner, loaded_s: float, restored_s: float, owning_s: float = 0.0) -> Restart:
    balances = owner.folded.state.rows("balances")
    return Restart(
        loaded_s=round(loaded_s, 2),
        restored_s=round(restored_s, 2),
        owning_s=round(owning_s, 2),
        folded=owner.tally.folded,
        accounts=len(balances),
        keys=len(owner.folded.state.rows(KEYS)),
        balance=sum(balances.values()),
        source_offset=owner.folded.filter.source_offset,
    )


async def _until(look: Callable[[], T | None]) -> T:
    """What the look gives, once that is true."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if found := look():
            return found
        await asyncio.sleep(LOOK_S)
    raise TimeoutError("the decider does not get there")


def main(mode: str, keys: int, tail: int, store: str, folder: Path) -> None:
    do = seed if mode == "seed" else start
    told = asyncio.run(do(keys, tail, store_of(store, folder), folder / "journals"))
    # Faust redirects `sys.stdout` to its log.
    print(msgspec.json.encode(told).decode(), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
