"""A real Prometheus that scrapes an exporter of sample traffic, found as workers are found."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from infra.local.ports import free_port
from infra.prometheus import render
from tests.observability.traffic import Traffic

START_S = 60


@dataclass(frozen=True)
class Exporter:
    """Where the sample traffic is scraped, and the folder with its target file."""

    port: int
    targets: Path


@pytest.fixture(scope="session")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    registry = CollectorRegistry()
    Traffic(registry)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    targets = tmp_path_factory.mktemp("targets")
    # The target's own `agent` label must not hide the one on each metric.
    found = [
        {
            "targets": [f"127.0.0.1:{server.server_port}"],
            "labels": {"job": "worker", "agent": "all"},
        }
    ]
    (targets / "worker-1.json").write_text(json.dumps(found))
    yield Exporter(server.server_port, targets)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def prometheus(
    exporter: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (apt: prometheus)")
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load(render(exporter.targets))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            _wait_for_samples(client, server, folder / "log")
            yield client
    finally:
        server.terminate()
        server.wait(timeout=30)


def _wait_for_samples(client: httpx.Client, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            answer = client.get("/api/v1/query", params={"query": "count_over_time(up[1m]) >= 6"})
            if answer.is_success and answer.json()["data"]["result"]:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"Prometheus took no samples:\n{log.read_text()[-2000:]}")
