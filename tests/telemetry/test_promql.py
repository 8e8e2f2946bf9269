"""PromQL over our samples, by the real Prometheus, which keeps nothing and reads from the API."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from connectors.telemetry.encoding import snappy
from connectors.telemetry.prometheus_messages import WriteRequest
from infra.local.ports import free_port
from infra.prometheus import render
from streams.runtime.settings import Settings, home
from tests import stack

pytestmark = pytest.mark.stack

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("telemetry-logs", "telemetry-rollups", "telemetry-samples")
MINUTE = 60_000
PRW = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("promql")


@pytest.fixture(scope="module")
def ports() -> tuple[int, int]:
    return free_port(), free_port()


@pytest.fixture(scope="module")
def token(folder: Path) -> str:
    api = Settings.read().api
    return DevIssuer(folder / "keys", api.issuer, api.audience).token("me", [READ, WRITE], 600)


@pytest.fixture(scope="module")
def api(
    folder: Path, ports: tuple[int, int], token: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """Worker and API in processes of their own; the client is somebody with all scopes."""
    with stack.worker(tmp_path_factory.mktemp("worker"), *AGENTS):
        shutil.copy(home() / "stack.json", folder)
        code = "import sys; from infra.cli import main; sys.argv[0] = 'headrace'; main()"
        environment = {
            **os.environ,
            "HEADRACE_HOME": str(folder),
            "HEADRACE_PROMETHEUS__URL": f"http://127.0.0.1:{ports[1]}",
        }
        with (folder / "api.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", code, "api", "--port", str(ports[0])],
                cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        url = f"http://127.0.0.1:{ports[0]}"
        try:
            await_ok(f"{url}/readyz", process, folder / "api.log")
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, timeout=30) as client:
                yield client
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def prometheus(
    folder: Path, ports: tuple[int, int], token: str, api: httpx.Client
) -> Iterator[None]:
    server = shutil.which("prometheus")
    if server is None:
        pytest.skip("no Prometheus on PATH")
    (folder / "token").write_text(token)
    reads = f"http://127.0.0.1:{ports[0]}/v1/telemetry/prometheus/read"
    config = folder / "prometheus.yml"
    config.write_text(render(folder / "none", remote_read=(reads, folder / "token")))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [server, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{ports[1]}"],
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{ports[1]}/-/ready"
        await_ok(url, process, folder / "prometheus.log")
        yield
    finally:
        process.terminate()
        process.wait(30)


def await_ok(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(log.read_text())


def ask(api: httpx.Client, path: str, **asked: Any) -> list[dict[str, Any]]:
    answer = api.get(f"/v1/telemetry{path}", params=asked)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def settled(api: httpx.Client, written: httpx.Response, path: str, **asked: Any) -> None:
    """Return when a read has passed what was written."""
    headers = {"Headrace-After": written.headers["Headrace-Position"], "Prefer": "wait=10"}
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        answer = api.get(f"/v1/telemetry{path}", params=asked, headers=headers)
        if answer.status_code == 200:
            return
    raise TimeoutError(answer.text)


def test_promql_over_samples(api: httpx.Client, prometheus: None) -> None:
    """A counter with a reset in two instances, a series that ends, and a histogram."""
    run = uuid.uuid4().hex[:8]
    end = int(time.time()) // 60 * 60 - 60
    request = WriteRequest()

    def series(name: str, values: list[float], **labels: str) -> None:
        made = request.timeseries.add()
        for key, value in {"__name__": name, "run": run, **labels}.items():
            made.labels.add(name=key, value=value)
        for n, value in enumerate(values):
            made.samples.add(timestamp=(end - 15 * (len(values) - 1 - n)) * 1_000, value=value)

    series("hits_total", [n * 15.0 for n in range(21)], instance="a")
    series("hits_total", [(n % 11) * 30.0 for n in range(21)], instance="b")
    for le, share in (("0.1", 0.5), ("1", 0.9), ("+Inf", 1.0)):
        series("took_bucket", [n * 100 * share for n in range(21)], le=le)
    body = snappy(request.SerializeToString())
    written = api.post("/v1/telemetry/prometheus/write", content=body, headers=PRW)
    assert written.status_code == 204, written.text
    settled(api, written, "/metrics/cardinality")

    def value(query: str) -> dict[str, float]:
        found = ask(api, "/query", query=query, time=str(end))
        return {one["metric"].get("instance", ""): float(one["value"][1]) for one in found}

    assert value(f'rate(hits_total{{run="{run}"}}[4m])') == pytest.approx(
        {"a": 1.0, "b": 2.0}, rel=0.13
    )
    assert value(f'sum(hits_total{{run="{run}"}})') == {"": 20 * 15.0 + 9 * 30.0}
    quantile = f'histogram_quantile(0.9, rate(took_bucket{{run="{run}"}}[4m]))'
    assert value(quantile)[""] == pytest.approx(1.0)
    assert value(f'hits_total{{run="{run}",instance=~"b|c"}} > 1') == {"b": 270.0}
    (ranged,) = ask(
        api, "/query_range", query=f'hits_total{{run="{run}",instance="a"}}', start=str(end - 60),
        end=str(end), step="30s",
    )  # fmt: skip
    assert [float(v) for _, v in ranged["values"]] == [240.0, 270.0, 300.0]


def test_promql_over_counts_of_lines(api: httpx.Client, prometheus: None) -> None:
    service = f"svc-{uuid.uuid4().hex[:8]}"
    end = int(time.time()) // 60 * 60
    lines = [f"ts={end - 150}.5 level=error msg=x{n}" for n in range(7)]
    lines += [f"ts={end - 90}.5 level=error msg=y{n}" for n in range(4)]
    written = api.post(
        "/v1/telemetry/lines", params={"service": service, "format": "logfmt"},
        content="\n".join(lines),
    )  # fmt: skip
    assert written.status_code == 204, written.text
    span = {"from": (end - 300) * 1_000, "to": end * 1_000, "step": "minute"}
    settled(api, written, "/logs/counts", **span)
    query = f'sum_over_time(telemetry_log_lines{{service="{service}",level="ERROR"}}[10m])'
    (found,) = ask(api, "/query", query=query, time=str(end))
    assert float(found["value"][1]) == 11


def test_what_is_no_promql_is_422_with_the_engines_words(
    api: httpx.Client, prometheus: None
) -> None:
    answer = api.get("/v1/telemetry/query", params={"query": "sum("})
    assert answer.status_code == 422
    assert "parse error" in answer.json()["detail"]
