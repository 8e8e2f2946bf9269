"""kill -9 half way through the catch-up, then a restart: every count must be the generator's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import polars as pl

from infra.local.home import CHECKOUT
from sinks.drivers.redis import connect
from sinks.open import open_sink
from streams.runtime.settings import Settings
from tests.bench.measure import run
from tests.bench.store import drop_read_model
from tests.bench.turns import WrongTotals
from tests.bench.ysb.check import HEADRACE, compare, model, stored
from tests.bench.ysb.engines import FLINK, FLUSH_MS, Engines, running
from tests.bench.ysb.events import APART_MS, WINDOW_MS, Variant, topic
from tests.bench.ysb.rule import projection

LOOK_S = 0.05
LONGEST_S = 120.0
_CHECKPOINT_MS = 500


class NotKilled(RuntimeError):
    """The engine was done before it was half way."""


def headrace(
    settings: Settings, engines: Engines, variant: Variant, records: int, wanted: pl.DataFrame
) -> dict[str, Any]:
    """Kill Headrace; it goes on where the store says. Raises `WrongTotals`, `NotKilled`."""
    drop_read_model(settings, model(HEADRACE, variant))
    query = projection(topic(variant, str(records)))
    sink = open_sink(query.store, query.model, settings)

    def done() -> float:
        at = sum(one.next_offset for one in sink.positions(1).values())
        return at / records

    command = engines.catch_up(HEADRACE, variant, records)
    share = _killed(command, done)
    sink.close()
    again = run(command, timeout_s=LONGEST_S)
    found = compare("headrace, killed", stored(settings, HEADRACE, variant), wanted)
    return {"killed_at": round(share, 3), "read": again.events, "counts_equal": found}


def flink(
    settings: Settings,
    engines: Engines,
    variant: Variant,
    records: int,
    wanted: pl.DataFrame,
) -> dict[str, Any]:
    """Kill Flink; it goes on from its newest checkpoint. Raises as `headrace` does.

    It reads without an end, as in the paced mode: after a restore the bounded source of connector
    5.0.0 was seen to read everything and not to end.
    """
    drop_read_model(settings, model("flink", variant))
    folder = engines.folder / "checkpoints"
    given = {
        **FLINK,
        "execution.checkpointing.interval": f"{_CHECKPOINT_MS} ms",
        "execution.checkpointing.dir": folder.as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    windows = max(1, records * APART_MS // WINDOW_MS)
    client = connect(settings.redis.url.get_secret_value())
    pattern = f"{{{model('flink', variant)}}}:*"

    def done() -> float:
        return len(set(client.scan_iter(match=pattern, count=1_000))) / windows

    name = str(records)
    share = _killed(engines.flink(variant, name, FLUSH_MS, given), done)
    client.close()
    newest = _newest(folder)
    given |= {"execution.state-recovery.path": newest.as_uri()} if newest else {}
    until_s = time.monotonic() + LONGEST_S
    with running(engines.flink(variant, name, FLUSH_MS, given)):
        while True:
            try:
                found = compare("flink, killed", stored(settings, "flink", variant), wanted)
            except WrongTotals:
                if time.monotonic() > until_s:
                    raise
                time.sleep(1.0)
            else:
                break
    return {
        "killed_at": round(share, 3),
        "from_checkpoint": newest is not None,
        "counts_equal": found,
    }


def _killed(command: list[str], done: Callable[[], float]) -> float:
    """Run until the store holds half, then kill; the share that was done by then."""
    process = Popen(command, cwd=CHECKOUT, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)
    until_s = time.monotonic() + LONGEST_S
    try:
        while (share := done()) < 0.5:
            if process.poll() is not None or time.monotonic() > until_s:
                raise NotKilled(f"at {share:.0%}, {process.returncode=}")
            time.sleep(LOOK_S)
        if process.poll() is not None:
            raise NotKilled(f"at {share:.0%}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return share


def _newest(folder: Path) -> Path | None:
    """The newest checkpoint that is complete."""
    found = sorted(folder.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
    return found[-1].parent if found else None
