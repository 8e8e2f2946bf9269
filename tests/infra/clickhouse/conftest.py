"""A real server process per test run, and more for tests that stop one."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import httpx
import pytest
from clickhouse_connect.driver.client import Client

_READY = re.compile(r"ready on http://[^:]+:(\d+)")
_ROOT = Path(__file__).parents[3]


class Served:
    """A running `python -m infra.clickhouse`."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self._log_path = data.parent / f"{data.name}.log"
        self._log = self._log_path.open("a")
        command = [sys.executable, "-m", "infra.clickhouse", "--data", str(data), "--port", "0"]
        self.process = subprocess.Popen([*command, *arguments], cwd=_ROOT, stderr=self._log)
        self._skip = self._log_path.stat().st_size
        self.port = 0

    @property
    def log(self) -> str:
        return self._log_path.read_bytes()[self._skip :].decode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self) -> "Served":
        while self.process.poll() is None:
            if ready := _READY.search(self.log):
                self.port = int(ready[1])
                return self
        raise AssertionError(f"server ended: {self.log}")

    def client(self, **arguments: Any) -> Client:
        return clickhouse_connect.get_client(host="127.0.0.1", port=self.port, **arguments)

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(timeout=30)
        self._log.close()
        return code


Start = Callable[..., Served]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("clickhouse") / "data", "--max-body-bytes", "33554432")
    yield server.wait_ready()
    server.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers of one's own, by default all on the same data directory."""
    servers: list[Served] = []

    def go(*arguments: str, data: Path = tmp_path / "data") -> Served:
        servers.append(Served(data, *arguments))
        return servers[-1]

    yield go
    for server in servers:
        server.stop(signal.SIGKILL)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with served.client(compress=True) as client:
        yield client


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=60) as http:
        yield http


@pytest.fixture
def table(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty table with a default of each kind, gone after the test."""
    name = re.sub(r"\W", "_", request.node.name)
    client.command(
        f"CREATE TABLE {name} (id UInt64, name LowCardinality(String) DEFAULT 'none', "
        "price Nullable(Float64), tags Array(String), doubled UInt64 DEFAULT id * 2) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 100"
    )
    yield name
    client.command(f"DROP TABLE {name} SYNC")
