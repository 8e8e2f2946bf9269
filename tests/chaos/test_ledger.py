"""The payments decider on the real log, killed and paused: money is neither made nor lost.

An independent program folds the events row by row, applies the reader rule by hand, and holds
every verdict that the client was told against the log.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

import polars as pl
import pytest

from tests.chaos import ledger
from tests.chaos.commands import Client
from tests.chaos.processes import ROOT, Worker, background, until
from tests.chaos.rig import FULL, Rig
from tests.chaos.verdict import Verdict

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TRANSFERS, KILLS = (1_000_000, 12) if FULL else (20_000, 4)


def client(rig: Rig) -> Client:
    """A sender of commands to the run's ledger."""
    commands = rig.deciders["payments"].commands
    bootstrap, port = rig.settings.kafka.bootstrap_servers, rig.servers["redis"].port
    return Client(bootstrap, commands, rig.schema_ids("payments"), port)


class Heard(Protocol):
    """What clients were told."""

    def write(self, path: Path) -> Path: ...


def recounted(rig: Rig, sender: Heard) -> dict[str, Any]:
    """What the independent program says of this run."""
    decider, out = rig.deciders["payments"], rig.folder / "recount-ledger"
    acks = sender.write(rig.folder / "acks.jsonl")
    subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos.recount_ledger"),
            *("--bootstrap", rig.settings.kafka.bootstrap_servers),
            *("--registry", rig.settings.registry.url),
            *("--commands", decider.commands.name, "--events", decider.events.name),
            *("--acks", str(acks), "--out", str(out)),
        ],
        cwd=ROOT,
        check=True,
        timeout=3_000 if FULL else 170,
    )
    found: dict[str, Any] = json.loads((out / "found.json").read_text())
    return found


def compared(rig: Rig, found: dict[str, Any]) -> None:
    """Hold the read model of the books against the recount, account by account."""
    sink, verdict = rig.sink("books"), Verdict()
    rig.drained("books", sink)
    stored = pl.concat(list(sink.rows(sink.live_version(), "balances")))
    verdict.compare("balances", stored, rig.folder / "recount-ledger")
    found["accounts"] = stored.height
    found["wrong"] += verdict.wrong
    found["books_differ"] = verdict.lost + verdict.duplicated


def reported(rig: Rig, test: str, found: dict[str, Any], *sometimes: str, **more: Any) -> None:
    """Print the line of a run on the ledger, and fail it where money or a verdict is wrong."""
    zero = {
        n: found.get(n, 0)
        for n in ("imbalance", "negative", "double", "acked_not_on_log", "books_differ")
    }
    names = (
        "accounts",
        "effect",
        "insufficient_funds",
        "duplicate",
        "key_reused",
        "stale",
        "claims",
        "acks",
        "replays",
    )
    facts = more | zero | {n: found.get(n, 0) for n in names}
    rig.tell(
        f"{test}: seed={rig.seed} faults={dict(rig.faults)} "
        f"{' '.join(f'{name}={value}' for name, value in facts.items())} "
        f"sometimes={ {name: rig.seen[name] for name in sometimes} }"
    )
    assert not found["wrong"], "\n".join(found["wrong"])
    assert not any(zero.values()), zero
    never = [name for name in sometimes if not rig.seen[name]]
    assert not never, f"void: {never} never happened"


@pytest.mark.timeout(3_600 if FULL else 600)
def test_money_survives_kills_of_its_decider(rigs: Callable[..., Rig]) -> None:
    rig = rigs(30, kafka_config={"session.timeout.ms": "6000"})
    rig.create("payments")
    sender, chance = client(rig), random.Random(rig.seed)
    workers = [rig.worker("payments,books"), rig.worker("payments,books")]
    rig.ready(*workers)
    sender.run(ledger.opening(rig.run))
    began = sender.answered
    kill_at = [began + (n + 1) * TRANSFERS // (KILLS + 1) for n in range(KILLS)]

    def kills() -> None:
        if kill_at and sender.answered >= kill_at[0]:
            kill_at.pop(0)
            victim = workers[chance.randrange(len(workers))]
            rig.seen["killed with commands in flight"] += sender.waiting > 0
            victim.kill()
            rig.faults["kill"] += 1
            victim.start()

    sender.run(ledger.transfers(rig.seed, rig.run, TRANSFERS), on=kills)
    rig.seen["resent"] = sender.resent
    found = recounted(rig, sender)
    compared(rig, found)
    rig.seen["replays"] = found["replays"]
    sometimes = ("killed with commands in flight", "resent", "replays")
    reported(rig, "T17 ledger, kills", found, *sometimes, transfers=TRANSFERS)
    assert rig.faults["kill"] == KILLS


PAUSES = 6 if FULL else 2
SESSION_S = 6.0
FOREVER = 10**9


def deciding(rig: Rig, worker: Worker) -> None:
    """Wait until it decides, and not only what it had in hand. A worker that has ended, because
    the broker did not answer it in time, is started again, as its supervisor does.
    """

    def more() -> bool:
        if worker.process.poll() is not None:
            rig.seen["ended by itself"] += 1
            worker.start()
        return worker.metric("headrace_decisions_total") > before + 1_000

    before = worker.metric("headrace_decisions_total")
    until(more, 90, f"decides, see {worker.log}")


def held_back(rig: Rig, zombie: Worker) -> None:
    """Hold what the zombie sends, at a moment when there are events among it."""

    def in_flight() -> bool:
        return zombie.metric("headrace_decisions_in_flight") > 0

    for _ in range(20):
        rig.proxies["kafka"].set(hold_requests=True)
        time.sleep(1.5)  # what was told before is old by then
        with suppress(AssertionError):
            until(in_flight, 2, "events are on their way")
            return
        rig.proxies["kafka"].heal()
    raise AssertionError("the zombie never had anything to send")


@pytest.mark.timeout(1_800 if FULL else 600)
def test_a_paused_decider_writes_nothing_that_counts(rigs: Callable[..., Rig]) -> None:
    """Its events are on their way when it is stopped: they arrive after its successor's claim."""
    rig = rigs(
        31,
        needs=("kafka", "detour", "redis"),
        kafka_config={
            "session.timeout.ms": str(int(SESSION_S * 1_000)),
            "heartbeat.interval.ms": "1000",
        },
    )
    rig.create("payments")
    sender, way = client(rig), rig.proxies["kafka"]
    zombie = rig.worker("payments", bootstrap=f"127.0.0.1:{way.port}")
    rig.ready(zombie)
    sender.run(ledger.opening(rig.run))

    def flow(stop: threading.Event) -> None:
        endless = ledger.transfers(rig.seed, rig.run, FOREVER)
        sender.run(takewhile(lambda _: not stop.is_set(), endless), in_flight_max=200)

    with background(flow):
        heir: Worker | None = None
        for _ in range(PAUSES):
            if heir is not None:
                heir.kill()
            deciding(rig, zombie)
            held_back(rig, zombie)
            zombie.signal(signal.SIGSTOP)
            rig.faults["pause"] += 1
            if heir is None:
                heir = rig.worker("payments,books")
            else:
                heir.start()
            time.sleep(2 * SESSION_S)
            deciding(rig, heir)
            rig.seen["successor decided meanwhile"] += 1
            way.heal()
            time.sleep(1.0)
            zombie.signal(signal.SIGCONT)
    found = recounted(rig, sender)
    compared(rig, found)
    rig.seen["stale events"] = found.get("stale", 0)
    sometimes = ("stale events", "successor decided meanwhile")
    accepted = found.get("stale told", 0) + found["books_differ"]
    reported(rig, "T5 paused decider", found, *sometimes, stale_accepted=accepted)
