"""The processes a demo runs beside the servers: workers and the API, with logs under the home.

They are kept as the servers are (`infra.local.process`), so a demo that was killed leaves a
record by which the next one ends them. One demo at a time has a home.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import httpx

from infra.error import StackError
from infra.local import PARTS, ports, process
from infra.local.home import CHECKOUT, Home
from infra.local.process import GRACE_S, Launch
from infra.prometheus.scrape import discover
from streams.runtime.settings import Settings

READY_TIMEOUT_S = 90.0
POLL_S = 0.2
LOG_LINES = 15
VERB = (sys.executable, "-c", "from infra.cli import main; main()")
WORKER, API = "demo-worker", "demo-api"
LOCK = "demo.lock"


@contextmanager
def alone(home: Home, what: str) -> Iterator[None]:
    """The home is one demo's (`what`, for others to read) while the block runs. What a demo that
    was killed has left running is ended first; the lock went with its process.

    Raises `StackError` while another demo has the home: its workers and API are not ours to end.
    """
    home.make()
    with (home.root / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StackError(
                f"{file.read().strip() or 'another demo'} runs in {home.root}: wait until it has "
                "ended, or give this one a home of its own (HEADRACE_HOME=<another folder>)"
            ) from None
        file.truncate(0)
        file.write(f"{what} (process {os.getpid()})")
        file.flush()
        process.end(home.beside(PARTS))
        yield


@contextmanager
def running(home: Home, name: str, *verb: str, **environment: str) -> Iterator[None]:
    """`headrace VERB …` in the background while the block runs, with these variables beside our
    own; its log is `<name>.log`.
    """
    record = home.run(name)
    path = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    launch = Launch((*VERB, *verb), CHECKOUT, {"PYTHONPATH": path, **environment})
    process.start(launch, record, home.log(name))
    try:
        yield
    finally:
        process.stop(record, GRACE_S)


@contextmanager
def product(home: Home, settings: Settings, system: str, **environment: str) -> Iterator[str]:
    """A worker of one system (with these variables) and the API, ready; gives the API's address.
    Raises `StackError`.
    """
    port = free_port(home, settings.api.port)
    url = f"http://{settings.api.host}:{port}"
    with (
        running(home, WORKER, "worker", system, "--processes", "1", **environment),
        running(home, API, "api", "--port", str(port)),
    ):
        wait_for_api(home, url)
        wait_for_workers(home, 1)
        yield url


def wait_for_workers(home: Home, processes: int) -> None:
    """Return when that many worker processes answer ready. Raises `StackError`."""

    def ready() -> bool:
        targets = discover(home.root / "targets")
        answers = [_answers(f"http://{target.address}/readyz") for target in targets]
        return sum(answers) >= processes

    _wait(home, WORKER, ready)


def wait_for_api(home: Home, url: str) -> None:
    """Return when the API answers ready. Raises `StackError`."""
    _wait(home, API, lambda: _answers(f"{url}/readyz"))


def free_port(home: Home, wanted: int) -> int:
    """The wanted port, else a free one of this home's block."""
    reserved = {port for roles in home.ports().values() for port in roles.values()}
    return ports.choose({"main": wanted}, {}, reserved, home.root)["main"]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0).is_success
    except httpx.HTTPError:
        return False


def _wait(home: Home, name: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not ready():
        ended = process.find(home.run(name)) is None
        if ended or time.monotonic() > deadline:
            raise StackError(f"{name} {'ended' if ended else 'is not ready'}:\n{last(home, name)}")
        time.sleep(POLL_S)


def last(home: Home, name: str) -> str:
    """The last lines of a log, to be shown in an error."""
    lines: Sequence[str] = process.tail(home.log(name), LOG_LINES)
    return "\n".join(f"  {line}" for line in lines)
