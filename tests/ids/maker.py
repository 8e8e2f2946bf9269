"""Processes that make ids: `python -m tests.ids.maker FOLDER PROCESSES COUNT WALL_SHIFT_S END`.

Each leases a worker number of space `SPACE`, makes its ids, writes them to `FOLDER/<pid>.npy` and
ends: `clean`, or by `kill`ing itself, so that nothing is given back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from connectors.asking import open_asking
from connectors.ids.issuer import Issuer
from schemas.ids.events import COMMANDS
from streams.runtime.settings import Ids, Settings

SPACE = "test"


async def make(folder: Path, count: int, end: str) -> None:
    async with (
        open_asking(Settings.read(), COMMANDS) as log,
        Issuer(log, Ids(space=SPACE)) as issuer,
    ):
        made, _ = await issuer.take(count)
        np.save(folder / f"{os.getpid()}.npy", made)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, processes: int, count: int, shift_s: int, end: str) -> None:
    wall = time.time
    time.time = lambda: wall() + shift_s
    children = []
    for _ in range(processes):
        child = os.fork()
        if not child:
            asyncio.run(make(folder, count, end))
            os._exit(0)
        children.append(child)
    codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    assert codes == {-signal.SIGKILL if end == "kill" else 0}, codes


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5])
