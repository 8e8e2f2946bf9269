"""Alert rules: when they fire, that lag and late lines make no alarm, and who is told."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.alerts.evaluator import GRACE_MS, Evaluator, Notifier
from infra.alerts.service import DEFAULT_RULES
from infra.local.ports import free_port
from sinks.telemetry.alerts import StandingAlert
from sinks.telemetry.query import Span
from streams.runtime.position import NO_WATERMARK
from streams.telemetry import alerting
from streams.telemetry.alerting import Alert, BadRules, Progress, Rule, horizon, judge, replay
from tests.api.conftest import MemoryProducer
from tests.telemetry.log import MINUTE, T

RULE = Rule(
    name="Errors", levels=("ERROR",), window_minutes=2, above=3, for_minutes=2,
    labels={"severity": "page"}, annotations={"summary": "{value:g} of {service}, {nobody}"},
)  # fmt: skip
SCHEMA = {"start_ms": pl.Int64, "service": pl.String, "level": pl.String, "weight": pl.Int64}


def counted(*rows: tuple[int, str, str, int]) -> pl.DataFrame:
    """Minute after `T`, service, level, lines."""
    return pl.DataFrame([(T + m * MINUTE, *rest) for m, *rest in rows], schema=SCHEMA, orient="row")


def told(changes: Sequence[Alert]) -> list[tuple[int, str, str]]:
    """Minute after `T`, service, state."""
    return [((c.changed_ms - T) // MINUTE, c.labels.get("service", ""), c.state) for c in changes]


def test_pending_firing_resolved() -> None:
    errors = counted(*((m, "pay", "ERROR", 2) for m in range(1, 6)), (3, "pay", "INFO", 99))
    changes = replay([RULE], errors, T, T + 20 * MINUTE)
    # Above 3 in two minutes: from the window that ends at 3 to the one that ends at 6.
    assert told(changes) == [(3, "pay", "PENDING"), (5, "pay", "FIRING"), (7, "pay", "RESOLVED")]
    assert [c.started_ms for c in changes] == [T + 3 * MINUTE] * 3
    assert changes[1].labels == {"alertname": "Errors", "service": "pay", "severity": "page"}
    assert alerting.annotated(RULE, changes[1]) == {"summary": "4 of pay, {nobody}"}


def test_a_short_spike_never_fires() -> None:
    changes = replay([RULE], counted((1, "pay", "ERROR", 9)), T, T + 20 * MINUTE)
    assert told(changes) == [(2, "pay", "PENDING"), (4, "pay", "RESOLVED")]


def test_groups_are_alerts_of_their_own() -> None:
    now = RULE.model_copy(update={"for_minutes": 0})
    errors = counted((1, "pay", "ERROR", 9), (2, "cart", "ERROR", 9), (2, "edge", "ERROR", 3))
    changes = replay([now], errors, T, T + 20 * MINUTE)
    assert sorted(told(changes)) == [
        (2, "pay", "FIRING"), (3, "cart", "FIRING"), (4, "pay", "RESOLVED"), (5, "cart", "RESOLVED")
    ]  # fmt: skip
    assert len({c.fingerprint for c in changes}) == 2


def test_silence_of_a_service_is_seen_by_a_lower_bound() -> None:
    quiet = Rule(name="Quiet", services=("pay*",), group_by=(), window_minutes=1, below=1)
    lines = counted((0, "pay-1", "INFO", 5), (1, "cart", "INFO", 5), (2, "pay-2", "INFO", 5))
    changes = replay([quiet], lines, T, T + 3 * MINUTE)
    assert told(changes) == [(2, "", "FIRING"), (3, "", "RESOLVED")]


@pytest.mark.parametrize(
    "text",
    [
        "[[rule]]\nname='A'", "[[rule]]\nname='A'\nabove=1\nbelow=1", "x=1",
        "[[rule]]\nname='A'\nbelow=1", "[[rule]]\nname='a b'\nabove=1", "\x00",
        "[[rule]]\nname='A'\nabove=1\n[[rule]]\nname='A'\nabove=2",
    ],
)  # fmt: skip
def test_bad_rules_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(BadRules):
        alerting.read(file)


def test_the_rules_that_come_along_can_be_read() -> None:
    assert {rule.name for rule in alerting.read(DEFAULT_RULES)} == {"ManyErrors", "Fatal"}


def test_a_partition_that_lags_holds_evaluation_back() -> None:
    now, grace = T + 60 * MINUTE, 10_000
    done = Progress(T, 7, 7)
    assert horizon([done], now, grace) == now - grace
    assert horizon([done, Progress(T + MINUTE, 5, 9)], now, grace) == T + MINUTE
    assert horizon([done, Progress(NO_WATERMARK, 0, 3)], now, grace) == NO_WATERMARK
    assert horizon([Progress(NO_WATERMARK, 0, 0)], now, grace) == now - grace
    assert horizon([], now, grace) == now - grace


minute_counts = st.lists(
    st.tuples(
        st.integers(0, 15), st.sampled_from(("pay", "cart")), st.just("ERROR"), st.integers(1, 6)
    ),
    max_size=20,
)


@settings(max_examples=60, deadline=None)
@given(minute_counts, st.integers(0, 3), st.integers(0, 18))
def test_states_follow_each_other_as_they_should(
    rows: list[tuple[int, str, str, int]], for_minutes: int, cut: int
) -> None:
    """Against the meaning: firing iff the condition held at each of the last minutes; and judging
    in two goes is judging in one.
    """
    rule = RULE.model_copy(update={"for_minutes": for_minutes})
    errors = counted(*rows)
    standing: dict[str, Alert] = {}
    held: dict[str, int] = {}
    changes: list[Alert] = []
    for minute in range(1, 20):
        at = T + minute * MINUTE
        standing, changed = judge(rule, standing, errors, at)
        changes += changed
        values = {group[0]: value for group, value in rule.values(errors, at).items()}
        for service in ("pay", "cart"):
            held[service] = held.get(service, -1) + 1 if values.get(service, 0) > 3 else -1
            mark = alerting.fingerprint(rule, (service,))
            state = standing[mark].state if mark in standing else ""
            if held[service] < 0:
                assert state in {"", "RESOLVED"}
            else:
                assert state == ("FIRING" if held[service] >= for_minutes else "PENDING")
    for before, after in pairwise(changes):
        assert before.changed_ms <= after.changed_ms
    assert sorted(changes, key=lambda c: (c.changed_ms, c.rule, c.fingerprint)) == replay(
        [rule], errors, T, T + 19 * MINUTE
    )
    first: dict[str, Alert] = {}
    for minute in range(1, cut + 1):
        first, _ = judge(rule, first, errors, T + minute * MINUTE)
    for minute in range(cut + 1, 20):
        first, _ = judge(rule, first, errors, T + minute * MINUTE)
    assert first == standing


@dataclass
class World:
    """What an evaluator sees, and what it wrote."""

    lines: pl.DataFrame
    now_ms: int
    lag: bool = False
    producer: MemoryProducer = field(default_factory=MemoryProducer)
    alerts: dict[str, StandingAlert] = field(default_factory=dict)

    async def counts(self, span: Span, step: str) -> pl.DataFrame:
        assert step == "minute"
        inside = pl.col("start_ms").is_between(span.from_ms, span.to_ms, closed="left")
        return self.lines.filter(inside)

    async def progress(self) -> list[Progress]:
        return [Progress(T, 0, 1 if self.lag else 0)]

    async def of_rule(self, rule: str) -> list[StandingAlert]:
        return [
            StandingAlert(row["rule"], row["fingerprint"], row["state"], row["labels"],
                          row["value"], row["started_at"], row["event_time"])
            for row in {r["fingerprint"]: r for r in self.rows}.values() if row["rule"] == rule
        ]  # fmt: skip

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, _, row in self.producer.sent]

    def evaluator(self, rule: Rule = RULE) -> Evaluator:
        return Evaluator([rule], self, self.producer, self.progress, lambda: self.now_ms)


ERRORS = counted(*((m, "pay", "ERROR", 2) for m in range(1, 6)))


async def test_an_evaluator_that_was_away_catches_up_to_the_same_changes() -> None:
    steady, broken = World(ERRORS, T), World(ERRORS, T)
    one, two = steady.evaluator(), broken.evaluator()
    for minute in range(1, 20):
        steady.now_ms = broken.now_ms = T + minute * MINUTE + GRACE_MS
        await one.step()
        if minute in {4, 12}:
            two = broken.evaluator()
            await two.resume(broken)
        if minute not in range(5, 9):
            await two.step()
    assert steady.rows == broken.rows
    assert [row["state"] for row in steady.rows] == ["PENDING", "FIRING", "RESOLVED"]


async def test_lag_delays_an_alarm_and_makes_none() -> None:
    """While lines wait to be folded nothing is judged, and a lower bound is not broken by it."""
    quiet = Rule(name="Quiet", group_by=(), window_minutes=1, below=1)
    world = World(counted((0, "pay", "INFO", 5)), T + MINUTE + GRACE_MS)
    evaluator = world.evaluator(quiet)
    await evaluator.step()
    world.lag = True
    world.now_ms = T + 5 * MINUTE + GRACE_MS
    assert await evaluator.step() == []
    world.lines = counted(*((m, "pay", "INFO", 5) for m in range(5)))
    world.lag = False
    assert await evaluator.step() == []
    world.now_ms += MINUTE
    assert told(await evaluator.step()) == [(6, "", "FIRING")]


@dataclass
class Pager:
    """Receives what Alertmanager sends."""

    port: int
    groups: list[dict[str, Any]] = field(default_factory=list)

    def named(self) -> list[tuple[str, tuple[str, ...]]]:
        """Status and services of each notification."""
        return [
            (g["status"], tuple(sorted(a["labels"]["service"] for a in g["alerts"])))
            for g in self.groups
        ]


@pytest.fixture
def pager() -> Iterator[Pager]:
    pager = Pager(free_port())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            pager.groups.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", pager.port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield pager
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def alertmanager(tmp_path: Path, pager: Pager) -> Iterator[str]:
    found = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if found is None:
        pytest.skip("no Alertmanager on PATH")
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        "route: {receiver: pager, group_by: [alertname], group_wait: 1s, group_interval: 1s}\n"
        "receivers:\n- name: pager\n  webhook_configs:\n"
        f"  - {{url: 'http://127.0.0.1:{pager.port}/', send_resolved: true}}\n"
    )
    port = free_port()
    process = subprocess.Popen(
        [found, f"--config.file={config}", f"--storage.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        until_s = time.monotonic() + 30
        while time.monotonic() < until_s:
            try:
                if httpx.get(f"{url}/-/ready").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(10)


async def test_alertmanager_groups_tells_once_and_heeds_silences(
    alertmanager: str, pager: Pager
) -> None:
    """The real one: two services in one notification, repeats unheard, a silence kept, the end
    told.
    """
    rule = RULE.model_copy(update={"for_minutes": 0})
    rows = [(m, service, "ERROR", 9) for m in range(1, 4) for service in ("pay", "cart", "edge")]
    world = World(counted(*rows), T + 2 * MINUTE + GRACE_MS)
    evaluator = world.evaluator(rule)
    now = datetime.now(UTC)
    async with httpx.AsyncClient(base_url=alertmanager) as client:
        notifier = Notifier(client, lambda: time.time_ns() // 10**6)
        silence = {
            "matchers": [{"name": "service", "value": "edge", "isRegex": False, "isEqual": True}],
            "startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "me", "comment": "known",
        }  # fmt: skip
        assert (await client.post("/api/v2/silences", json=silence)).status_code == 200
        await evaluator.step()
        for _ in range(3):
            await notifier.tell(evaluator.standing)
        await until(lambda: len(pager.groups) == 1)
        assert pager.named() == [("firing", ("cart", "pay"))]
        (first, *_) = pager.groups[0]["alerts"]
        assert first["labels"]["severity"] == "page"
        assert first["annotations"]["summary"].startswith("9 of ")
        world.now_ms = T + 9 * MINUTE + GRACE_MS
        await evaluator.step()
        await notifier.tell(evaluator.standing)
        await until(lambda: len(pager.groups) == 2)
        assert pager.named()[1] == ("resolved", ("cart", "pay"))


async def until(condition: Any) -> None:
    for _ in range(300):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError
