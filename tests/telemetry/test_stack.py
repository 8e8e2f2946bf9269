"""Lines and samples in at the API, through Kafka, six agents and three stores, and out again."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.positions import parse
from api.routes.telemetry.logs import follow
from connectors.telemetry.encoding import decoded, snappy
from connectors.telemetry.prometheus_messages import ReadRequest, ReadResponse, WriteRequest
from infra.alerts import service
from sinks.telemetry.open import open_telemetry
from sinks.telemetry.query import LogQuery, Span
from streams.runtime.settings import Settings
from tests import stack

pytestmark = pytest.mark.stack

AGENTS = ("telemetry-logs", "telemetry-cold", "telemetry-rollups", "telemetry-samples",
          "telemetry-metrics", "telemetry-alerts")  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), *AGENTS):
        yield


@pytest.fixture
async def api(worker: None, tmp_path: Any) -> AsyncIterator[stack.Api]:
    async with stack.api(tmp_path) as opened:
        yield opened


@pytest.fixture
def tag() -> str:
    """The service of this run, since the topic holds what others wrote."""
    return f"svc-{uuid.uuid4().hex[:8]}"


def now_ms() -> int:
    return int(time.time() * 1_000)


async def send_lines(api: stack.Api, tag: str, lines: list[dict[str, Any]]) -> None:
    text = "\n".join(json.dumps(line) for line in lines)
    answer = await api.client.post(
        "/v1/telemetry/lines", params={"service": tag, "format": "json"}, content=text
    )
    assert answer.status_code == 204, answer.text
    api.written |= stack.offsets(answer.headers["Headrace-Position"])


def around(at: int) -> dict[str, int]:
    return {"from": (at - HOUR) // HOUR * HOUR, "to": (at + HOUR) // HOUR * HOUR}


async def test_lines_are_found_counted_and_audited(api: stack.Api, tag: str) -> None:
    at = now_ms() - 5 * MINUTE
    trace = uuid.uuid4().hex
    lines = [
        {"time": at + n * 1_000, "level": "error" if n % 4 == 0 else "info", "msg": f"step {n} ok",
         "trace_id": trace if n < 5 else uuid.uuid4().hex, "host": f"h{n % 2}", "zone": "z"}
        for n in range(40)
    ]  # fmt: skip
    await send_lines(api, tag, lines)
    await send_lines(api, tag, lines[:10])  # delivered again
    span = around(at)

    async def found(**asked: Any) -> list[dict[str, Any]]:
        answer = await api.read("/v1/telemetry/logs", **span, **asked)
        assert answer.status_code == 200, answer.text
        return answer.json()["lines"]

    assert len(await found(q=f"service:{tag}", limit=1_000)) == 40
    assert len(await found(service=tag, level="error")) == 10
    assert len(await found(service=tag, trace_id=trace)) == 5
    assert len(await found(q=f'service:{tag} "STEP 3" zone:z')) == 11
    newest = await found(service=tag, limit=1)
    assert newest[0]["body"] == "step 39 ok"
    assert newest[0]["tier"] == "hot"
    for step in ("minute", "hour"):
        counts = (await api.read("/v1/telemetry/logs/counts", **span, step=step)).json()
        mine = [c for c in counts if c["service"] == tag]
        assert sum(c["lines"] for c in mine) == 40
        assert sum(c["lines"] for c in mine if c["level"] == "ERROR") == 10
    audit = (await api.read("/v1/telemetry/logs/audit", **span)).json()
    assert audit["difference"] == 0
    assert audit["raw"] >= 40


async def test_lines_of_weeks_ago_are_counted_and_found_in_the_cold_tier(
    api: stack.Api, tag: str
) -> None:
    """Nothing is refused: older than the hot tier, and later than any window is open."""
    at = now_ms() - 30 * 24 * HOUR
    await send_lines(api, tag, [{"time": now_ms(), "level": "info", "msg": "now"}])
    old = [{"time": at + n, "level": "warn", "msg": f"old {n}"} for n in range(7)]
    await send_lines(api, tag, old)
    answer = await api.read("/v1/telemetry/logs", **around(at), service=tag)
    lines = answer.json()["lines"]
    assert [line["body"] for line in lines] == [f"old {n}" for n in reversed(range(7))]
    assert {(line["tier"], line["late"]) for line in lines} == {("cold", True)}
    counts = (await api.read("/v1/telemetry/logs/counts", **around(at), step="hour")).json()
    assert sum(c["lines"] for c in counts if c["service"] == tag) == 7


async def test_pages(api: stack.Api, tag: str) -> None:
    at = now_ms() - MINUTE
    await send_lines(api, tag, [{"time": at, "msg": f"m{n}"} for n in range(25)])
    seen: list[str] = []
    cursor = ""
    while True:
        asked = {"service": tag, "limit": 10, "cursor": cursor}
        page = (await api.read("/v1/telemetry/logs", **around(at), **asked)).json()
        seen += [line["body"] for line in page["lines"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert sorted(seen) == sorted(f"m{n}" for n in range(25))


async def test_following_shows_new_lines_and_goes_on_where_it_was(api: stack.Api, tag: str) -> None:
    await send_lines(api, tag, [{"msg": "before"}])
    await api.read("/v1/telemetry/logs", **around(now_ms()), service=tag)
    async with open_telemetry(Settings.read()) as readers:
        reader = readers["telemetry"]
        start = {at: offset for (_, at), offset in (await reader.applied()).items()}
        asked = LogQuery(services=(tag,))

        async def take(events: Any, n: int) -> list[tuple[str, str]]:
            found: list[tuple[str, str]] = []
            async for event in events:
                if event.startswith(b"id: "):
                    place, data = event.decode().split("\n")[:2]
                    body = json.loads(data.removeprefix("data: "))["body"]
                    found.append((place.removeprefix("id: "), body))
                if len(found) == n:
                    return found
            return found

        events = follow(reader, asked, start)
        task = asyncio.create_task(take(events, 3))
        for n in range(3):
            await send_lines(api, tag, [{"msg": f"live {n}", "level": "info"}])
        seen = await asyncio.wait_for(task, 60)
        assert [body for _, body in seen] == ["live 0", "live 1", "live 2"]
        behind = {at: offset for (_, at), offset in parse(seen[0][0]).items()}
        again = await asyncio.wait_for(take(follow(reader, asked, behind), 2), 60)
        assert [body for _, body in again] == ["live 1", "live 2"]


def write_request(tag: str, at: int, values: list[float]) -> bytes:
    request = WriteRequest()
    for job in ("a", "b"):
        series = request.timeseries.add()
        for name, value in (("__name__", "jobs_total"), ("job", job), ("run", tag)):
            series.labels.add(name=name, value=value)
        for n, value in enumerate(values):
            series.samples.add(timestamp=at + n * 15_000, value=value)
    return snappy(request.SerializeToString())


async def write_samples(api: stack.Api, tag: str, at: int, values: list[float]) -> None:
    for _ in range(2):  # delivered twice
        answer = await api.client.post(
            "/v1/telemetry/prometheus/write",
            content=write_request(tag, at, values),
            headers={"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"},
        )
        assert answer.status_code == 204, answer.text
        api.written |= stack.offsets(answer.headers["Headrace-Position"])


async def remote_read(api: stack.Api, at: int, *matchers: tuple[int, str, str]) -> Any:
    request = ReadRequest()
    query = request.queries.add(start_timestamp_ms=at - HOUR, end_timestamp_ms=at + HOUR)
    for kind, name, value in matchers:
        query.matchers.add(type=kind, name=name, value=value)
    after = ", ".join(f"{place}/{offset}" for place, offset in api.written.items())
    until_s = time.monotonic() + 60
    while True:
        answer = await api.client.post(
            "/v1/telemetry/prometheus/read",
            content=snappy(request.SerializeToString()),
            headers={"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy",
                     "Headrace-After": after, "Prefer": "wait=10"},
        )  # fmt: skip
        if answer.status_code == 200 or time.monotonic() > until_s:
            break
    assert answer.status_code == 200, answer.text
    return ReadResponse.FromString(decoded(answer.content, "snappy", 10**7)).results[0].timeseries


async def test_samples_are_read_as_they_were_written_and_rolled_up(
    api: stack.Api, tag: str
) -> None:
    at = (now_ms() - 10 * MINUTE) // MINUTE * MINUTE
    values = [float(n) for n in range(8)]
    await write_samples(api, tag, at, values)
    both = await remote_read(api, at, (0, "__name__", "jobs_total"), (2, "run", tag[:-1] + "."))
    assert [[s.value for s in series.samples] for series in both] == [values, values]
    one = await remote_read(api, at, (0, "run", tag), (3, "job", "b|c"), (1, "nope", "x"))
    assert [{p.name: p.value for p in series.labels} for series in one] == [
        {"__name__": "jobs_total", "job": "a", "run": tag}
    ]
    rolled = (
        await api.read(
            "/v1/telemetry/metrics/rollups", **around(at), metric="jobs_total", step="minute",
            label=[f"run={tag}", "job=a"],
        )
    ).json()  # fmt: skip
    assert [(p["count"], p["sum"], p["min"], p["max"], p["last"]) for p in rolled[0]["points"]] == [
        (4, 6, 0, 3, 3), (4, 22, 4, 7, 7)
    ]  # fmt: skip
    names = (await api.read("/v1/telemetry/metrics/cardinality")).json()
    assert "jobs_total" in {one["name"] for one in names}


async def test_lines_are_a_metric_too(api: stack.Api, tag: str) -> None:
    at = now_ms() - 2 * MINUTE
    await send_lines(api, tag, [{"time": at, "level": "error", "msg": f"x{n}"} for n in range(6)])
    await api.read("/v1/telemetry/logs/counts", **around(at), step="minute")
    api.written.clear()
    (series,) = await remote_read(
        api, at, (0, "__name__", "telemetry_log_lines"), (0, "service", tag)
    )
    assert [(s.timestamp, s.value) for s in series.samples] == [(at // MINUTE * MINUTE, 6)]


async def test_what_is_asked_wrongly_is_422(api: stack.Api) -> None:
    span = {"from": 0, "to": 1}
    for path, asked in (
        ("/logs", {**span, "q": '"open'}), ("/logs", {**span, "level": "loud"}),
        ("/logs", {**span, "cursor": "?"}), ("/logs", {"from": 1, "to": 0}),
        ("/logs", {"from": 0, "to": 10**14}), ("/logs/counts", span),
        ("/metrics/rollups", {**span, "metric": "m", "step": "hour", "label": "x"}),
        ("/query", {}), ("/query_range", {"query": "up"}),
    ):  # fmt: skip
        answer: httpx.Response = await api.client.get(f"/v1/telemetry{path}", params=asked)
        assert answer.status_code == 422, (path, asked, answer.text)


async def test_a_followed_file_arrives_once_through_kills_and_rotation(
    api: stack.Api, tag: str, tmp_path: Path
) -> None:
    """`headrace tail` as a process, killed twice while the file is written and rotated."""
    file = tmp_path / "pay.log"
    code = "import sys; from infra.cli import main; sys.argv[0] = 'headrace'; main()"
    command = [sys.executable, "-c", code, "tail", tag, str(file), "--spool",
               str(tmp_path / "spool"), "--format", "logfmt", "--host", "h1"]  # fmt: skip
    start_ms = now_ms()

    async def found() -> list[dict[str, Any]]:
        asked = {"from": start_ms - MINUTE, "to": now_ms() + MINUTE, "q": f"service:{tag}"}
        answer = await api.client.get("/v1/telemetry/logs", params={**asked, "limit": 1_000})
        lines: list[dict[str, Any]] = answer.json()["lines"]
        return lines

    async def arrived(count: int) -> None:
        for _ in range(300):
            if len(await found()) >= count:
                return
            await asyncio.sleep(0.2)
        raise TimeoutError(f"{len(await found())} of {count}")

    written = 0
    for kill in (True, True, False):
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        try:
            for _ in range(5):
                with file.open("a") as out:
                    out.writelines(f"level=error msg=n{written + n}\n" for n in range(20))
                written += 20
                await asyncio.sleep(0.1)
            await arrived(written - 40 if kill else written)
            if kill:
                process.kill()
                file.rename(tmp_path / f"pay.log.{written}")
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    lines = await found()
    assert sorted(line["body"] for line in lines) == sorted(f"n{n}" for n in range(written))
    assert {line["stream"] for line in lines} == {f"{tag}/h1"}
    assert {line["level"] for line in lines} == {"ERROR"}


async def test_an_alert_over_the_log_is_recorded(
    api: stack.Api, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluator as it runs, on counts from the real store, while no Alertmanager answers."""
    name = tag.replace("-", "_")
    rules = tmp_path / "rules.toml"
    rules.write_text(
        f"[[rule]]\nname = '{name}'\nservices = ['{tag}']\nwindow_minutes = 2\nabove = 3\n"
    )
    monkeypatch.setenv("HEADRACE_TELEMETRY__ALERT_RULES_FILE", str(rules))
    monkeypatch.setenv("HEADRACE_ALERTMANAGER__URL", "http://127.0.0.1:9")
    monkeypatch.setattr("infra.alerts.evaluator.GRACE_MS", 0)
    at = now_ms() // MINUTE * MINUTE - MINUTE // 2
    await send_lines(api, tag, [{"time": at, "level": "error", "msg": f"x{n}"} for n in range(4)])
    await api.read("/v1/telemetry/logs/counts", **around(at), step="minute")
    stop = asyncio.Event()
    running = asyncio.create_task(service.run(Settings.read(), stop))
    try:
        found: list[dict[str, Any]] = []
        for _ in range(300):
            answer = await api.client.get(f"/v1/telemetry/alerts/{name}")
            found = answer.json() if answer.status_code == 200 else []
            if found or running.done():
                break
            await asyncio.sleep(0.2)
    finally:
        stop.set()
        await running
    (alert,) = found
    assert (alert["state"], alert["value"]) == ("FIRING", 4.0)
    assert alert["labels"] == {"alertname": name, "service": tag}
    replayed = await service.replay(Settings.read(), Span(at - HOUR, at + 10 * MINUTE))
    assert [one.state for one in replayed] == ["FIRING", "RESOLVED"]
    assert replayed[0].fingerprint == alert["fingerprint"]
