"""The payments decider on the real log, killed and paused: money is neither made nor lost.

An independent program folds the events row by row, applies the reader rule by hand, and holds
every verdict that the client was told against the log.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos import ledger
from tests.chaos.commands import Client
from tests.chaos.processes import ROOT
from tests.chaos.rig import FULL, Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TRANSFERS, KILLS = (1_000_000, 12) if FULL else (20_000, 4)


def client(rig: Rig) -> Client:
    """A sender of commands to the run's ledger."""
    commands = rig.deciders["payments"].commands
    bootstrap, port = rig.settings.kafka.bootstrap_servers, rig.servers["redis"].port
    return Client(bootstrap, commands, rig.schema_ids("payments"), port)


def recounted(rig: Rig, sender: Client) -> dict[str, Any]:
    """What the independent program says of this run."""
    decider, out = rig.deciders["payments"], rig.folder / "recount-ledger"
    acks = sender.write(rig.folder / "acks.jsonl")
    subprocess.run(
        [
            *(sys.executable, str(ROOT / "tests/chaos/recount_ledger.py")),
            *("--bootstrap", rig.settings.kafka.bootstrap_servers),
            *("--registry", rig.settings.registry.url),
            *("--commands", decider.commands.name, "--events", decider.events.name),
            *("--acks", str(acks), "--out", str(out)),
        ],
        check=True,
        timeout=3_000 if FULL else 170,
    )
    found: dict[str, Any] = json.loads((out / "found.json").read_text())
    return found


def reported(rig: Rig, test: str, found: dict[str, Any], *sometimes: str, **more: Any) -> None:
    """Print the line of a run on the ledger, and fail it where money or a verdict is wrong."""
    zero = {
        n: found.get(n, 0) for n in ("imbalance", "negative", "double", "acked, not on the log")
    }
    names = ("effect", "insufficient_funds", "duplicate", "key_reused", "stale", "claims")
    facts = {n: found.get(n, 0) for n in names}
    told = {n: found.get(n, 0) for n in ("acks", "replays")}
    seen = {name: rig.seen[name] for name in sometimes}
    rig.tell(
        f"{test}: seed={rig.seed} faults={dict(rig.faults)} {more} {zero} {facts} {told} "
        f"sometimes={seen}"
    )
    assert not found["wrong"], "\n".join(found["wrong"])
    assert not any(zero.values()), zero
    never = [name for name in sometimes if not rig.seen[name]]
    assert not never, f"void: {never} never happened"


@pytest.mark.timeout(3_600 if FULL else 300)
def test_money_survives_kills_of_its_decider(rigs: Callable[..., Rig]) -> None:
    rig = rigs(30, kafka_config={"session.timeout.ms": "6000"})
    rig.create("payments")
    sender, chance = client(rig), random.Random(rig.seed)
    workers = [rig.worker("payments"), rig.worker("payments")]
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
    rig.seen["replays"] = found["replays"]
    sometimes = ("killed with commands in flight", "resent", "replays")
    reported(rig, "T17 ledger, kills", found, *sometimes, transfers=TRANSFERS)
    assert rig.faults["kill"] == KILLS
