"""Worker and API as processes of their own, ready for load, and what each uses."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from subprocess import DEVNULL, Popen
from typing import Any

import httpx
import msgspec
import psutil

from api.issuer import DevIssuer
from connectors.producer import LINGER_MS
from infra.local.home import CHECKOUT
from infra.local.ports import free_port
from streams.runtime.settings import Settings, home
from tests.bench.http import Taken
from tests.bench.measure import broker_process, busy_s

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
TOKEN_TTL_S = 3_600
OK = 200
UNLIMITED = 10**9
"""Of the rate of one subject: all load is one subject's here."""


@dataclass(frozen=True)
class Servers:
    """The processes under test, the broker, and this process, which makes the load."""

    base: str
    processes: dict[str, psutil.Process]

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds of each so far, children included."""
        return {name: _cpu_s(process) for name, process in self.processes.items()}


def _cpu_s(process: psutil.Process) -> float:
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


async def metered(running: Servers, load: Coroutine[None, None, Taken]) -> Taken:
    """Run a load and note what the processes used meanwhile, and the rest of the machine: stores,
    and whatever made these figures worse.
    """
    machine, before = busy_s(), running.cpu_s()
    taken = await load
    used = {name: spent - before[name] for name, spent in running.cpu_s().items()}
    used["others"] = max(0.0, busy_s() - machine - sum(used.values()))
    taken.cores = {name: spent / taken.seconds for name, spent in used.items()}
    return taken


def token(settings: Settings, *scopes: str) -> str:
    """A token of the development issuer."""
    issuer = DevIssuer(home() / "keys", settings.api.issuer, settings.api.audience)
    return issuer.token("bench", list(scopes), TOKEN_TTL_S)


def settings_of_api() -> dict[str, Any]:
    """What the figures of the API depend on."""
    found = {"granian": version("granian"), "fastapi": version("fastapi")}
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        loop = "asyncio"
    return {**found, "event_loop": loop, "producer_linger_ms": LINGER_MS, "rate_limit": "lifted"}


@contextmanager
def servers(settings: Settings, agents: Sequence[str], processes: int = 1) -> Iterator[Servers]:
    """An API of so many processes, and a worker with these agents if there are any, until the block
    ends.
    """
    port, probes = free_port(), free_port()
    DevIssuer(home() / "keys", settings.api.issuer, settings.api.audience).key()
    api = ["-c", "from infra.cli import main; main()", "api", "--port", str(port)]
    commands = {"api": [*api, "--workers", str(processes)]}
    ready = [f"http://127.0.0.1:{port}"]
    if agents:
        commands["worker"] = [*("-m", "streams", *agents), "--port", str(probes), "--slot", "90"]
        ready.append(f"http://127.0.0.1:{probes}")
    limits = msgspec.json.encode({"rate_per_s": UNLIMITED, "rate_burst": UNLIMITED}).decode()
    quiet = {**os.environ, "HEADRACE_LOG_LEVEL": "ERROR", "HEADRACE_API__LIMITS": limits}
    running = {
        name: Popen([sys.executable, *one], cwd=CHECKOUT, env=quiet, stdout=DEVNULL)
        for name, one in commands.items()
    }
    try:
        _until_ready(running, ready)
        own = {name: psutil.Process(one.pid) for name, one in running.items()}
        broker = broker_process(settings)
        more = {} if broker is None else {"broker": broker}
        yield Servers(ready[0], {**own, **more, "load generator": Load()})
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(STOP_TIMEOUT_S)


class Load(psutil.Process):
    """This process alone: the servers are its children and have figures of their own."""

    def children(self, recursive: bool = False) -> list[psutil.Process]:
        return []


def _until_ready(running: dict[str, Popen[bytes]], bases: Sequence[str]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    for base in bases:
        while not _ready(f"{base}/readyz"):
            ended = [name for name, process in running.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise TimeoutError(f"{base} is not ready; ended: {ended}")
            time.sleep(0.1)


def _ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).status_code == OK
    except httpx.TransportError:
        return False
