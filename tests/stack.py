"""The whole product for a test: a worker process on the local stack, and the API in this one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from prometheus_client import CollectorRegistry

from api.app import create_app, open_services
from api.auth import SCOPES
from api.issuer import DevIssuer
from infra.local.home import CHECKOUT
from infra.local.ports import free_port
from schemas.apply import apply
from streams.runtime.metrics import Metrics
from streams.runtime.settings import Settings, home

START_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 90.0


@contextmanager
def worker(folder: Path, *agents: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m streams` with these agents until the end; it has joined its groups by then. It
    may be killed, and must not end by itself.

    Its journals and scrape target are in `folder`, so that it is beside any other worker.
    """
    apply(Settings.read())
    stack = home() / "stack.json"
    if stack.is_file():
        shutil.copy(stack, folder)
    port = free_port()
    log = folder / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams", *agents, "--port", str(port)],
            env={**os.environ, "HEADRACE_HOME": str(folder)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _await_ready(process, port, log)
        yield process
        assert process.poll() in (None, -signal.SIGKILL), log.read_text()[-4_000:]
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until_s:
        assert process.poll() is None, log.read_text()[-4_000:]
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(log.read_text()[-4_000:])


@dataclass(frozen=True)
class Server:
    """The API in a process of its own."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        """`kill -9`, of its worker processes too."""
        for one in (*psutil.Process(self.process.pid).children(recursive=True), self.process):
            one.kill()
        self.process.wait()


@contextmanager
def served(folder: Path, *options: str, **environment: str) -> Iterator[Server]:
    """The API's real server until the end. Its keys are in `folder`."""
    port = free_port()
    code = "import sys; from infra.cli import main; sys.argv[0] = 'headrace'; main()"
    log = folder / f"api-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "api", "--port", str(port), *options],
            cwd=CHECKOUT,
            env={**os.environ, "HEADRACE_HOME": str(folder), **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _await_ready(process, port, log)
        yield Server(f"http://127.0.0.1:{port}", process)
    finally:
        process.terminate()
        process.wait(30)


@dataclass
class Api:
    """The API's client, as somebody with all scopes who reads all own writes."""

    client: httpx.AsyncClient
    written: dict[str, int] = field(default_factory=dict)
    """Topic and partition → the last offset."""

    async def write(self, path: str, body: Any) -> None:
        """POST, and remember the position."""
        answer = await self.client.post(path, json=body)
        assert answer.status_code == 202, answer.text
        self.written |= offsets(answer.headers["Headrace-Position"])

    async def read(self, path: str, **params: Any) -> httpx.Response:
        """GET once the read model has passed all that was written. It may have the whole log to
        fold first, so 504 and 503 are asked again.
        """
        after = ", ".join(f"{place}/{offset}" for place, offset in self.written.items())
        headers = {"Headrace-After": after, "Prefer": "wait=10"}
        until_s = time.monotonic() + READ_TIMEOUT_S
        while True:
            answer = await self.client.get(path, params=params, headers=headers)
            if answer.status_code not in {503, 504} or time.monotonic() > until_s:
                break
        if answer.status_code == 200:
            applied = offsets(answer.headers["Headrace-Applied"])
            assert all(applied[place] >= offset for place, offset in self.written.items())
        return answer


def offsets(header: str) -> dict[str, int]:
    """Topic and partition → offset, of a header's positions."""
    found = (one.rsplit("/", 1) for one in header.split(", "))
    return {place: int(offset) for place, offset in found}


@asynccontextmanager
async def api(folder: Path) -> AsyncIterator[Api]:
    """The API with its real services; keys of its own are in `folder`."""
    settings = Settings.read()
    issuer = DevIssuer(folder / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("tester", list(SCOPES), 600)
    own = {"keys_file": issuer.folder / "jwks.json", "keys_url": None}
    settings = settings.model_copy(update={"api": settings.api.model_copy(update=own)})
    metrics = Metrics(CollectorRegistry())
    app = create_app(lambda: open_services(settings, metrics), settings.api.limits, metrics)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://test",
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        ) as client,
    ):
        yield Api(client)
