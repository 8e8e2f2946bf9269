"""Worker processes of a benchmark: each with a home of its own, watched from outside."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired

import httpx
import psutil

from infra.local.home import CHECKOUT
from infra.local.ports import free_port
from streams.runtime.settings import home

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
OK = 200


class Ended(RuntimeError):
    """A process ended, or was not ready in time."""


class Server:
    """A process that answers `/readyz` on a port."""

    def __init__(self, process: Popen[bytes], port: int) -> None:
        self.process = process
        self.base = f"http://127.0.0.1:{port}"
        self.seen = psutil.Process(process.pid)

    def ready(self) -> bool:
        """Whether it answers that it is. Raises `Ended`."""
        if (status := self.process.poll()) is not None:
            raise Ended(f"{self.process.args!r} ended with {status}")
        try:
            return httpx.get(f"{self.base}/readyz", timeout=5.0).status_code == OK
        except httpx.TransportError:
            return False

    def cpu_s(self) -> float:
        """Processor seconds so far, children included."""
        family = (self.seen, *self.seen.children(recursive=True))
        times = [one.cpu_times() for one in family]
        return float(sum(one.user + one.system for one in times))

    def rss(self) -> int:
        """Resident bytes, children included."""
        family = (self.seen, *self.seen.children(recursive=True))
        return sum(int(one.memory_info().rss) for one in family)


@contextmanager
def server(folder: Path, arguments: Callable[[int], Sequence[str]]) -> Iterator[Server]:
    """`python <arguments of a free port>`, with `folder` for its home, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    for kept in (home() / "stack.json", home() / "keys"):
        if kept.is_file():
            shutil.copy(kept, folder)
        elif kept.is_dir():
            shutil.copytree(kept, folder / kept.name, dirs_exist_ok=True)
    port = free_port()
    environment = {**os.environ, "HEADRACE_HOME": str(folder), "HEADRACE_LOG_LEVEL": "ERROR"}
    command = [sys.executable, *arguments(port)]
    process = Popen(command, cwd=CHECKOUT, env=environment, stdout=DEVNULL)
    try:
        yield Server(process, port)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def workers(folder: Path, benchmark: str, count: int = 1) -> Iterator[list[Server]]:
    """So many workers with the benchmark's agents, all ready."""

    def arguments(slot: int) -> Callable[[int], Sequence[str]]:
        program = ("-m", "tests.bench.contenders.worker", benchmark)
        return lambda port: (*program, str(port), str(slot))

    with ExitStack() as stack:
        started = [
            stack.enter_context(server(folder / str(slot), arguments(slot)))
            for slot in range(count)
        ]
        until(lambda: all(one.ready() for one in started), "the workers to be ready")
        yield started


def until(
    true: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S, every_s: float = 0.02
) -> None:
    """Wait for it. Raises `TimeoutError`, and what `true` raises."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}")
        time.sleep(every_s)
