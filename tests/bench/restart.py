"""How long a decider takes to come back with a large state: the process is really started.

One run seeds the topics and a snapshot; then processes start on it, from disk and from S3 in turns.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from infra.local.home import CHECKOUT
from streams.runtime.settings import Settings
from tests.bench import report, transfers
from tests.bench.contenders.restart import PREFIX, Restart, store_of
from tests.bench.measure import python
from tests.bench.store import drop_topics
from tests.bench.turns import WrongTotals

KEYED_EVERY = 10
STORES = ("disk", "s3")
TIMEOUT_S = 240.0


def measure(settings: Settings, runs: int, keys: int, tail: int) -> dict[str, Any]:
    """Medians by store; the state has `keys` accounts and a tenth of that in idempotency keys."""
    one = transfers.decider(keys + tail)
    with TemporaryDirectory() as name:
        folder = Path(name)
        transfers.fill(settings, one, transfers.chain(keys, tail), KEYED_EVERY)
        _ran("seed", keys, tail, "disk", folder)
        size = _copied(folder)
        found: dict[str, list[Restart]] = {store: [] for store in STORES}
        for turn in range(runs):
            for store in STORES:
                found[store].append(_ran("start", keys, tail, store, folder))
                took_s = found[store][-1].owning_s
                report.console.print(f"  {turn + 1}/{runs} restart from {store:<5}{took_s:>8.2f} s")
        for stale in store_of("s3", folder).list(PREFIX):
            store_of("s3", folder).delete(stale)
    drop_topics(settings, [one.commands, one.events])
    return {
        "accounts": keys,
        "idempotency_keys": found["disk"][0].keys,
        "snapshot_bytes": size,
        "folded_after_it": found["disk"][0].folded,
        "stores": {store: _figures(each) for store, each in found.items()},
    }


def _ran(mode: str, keys: int, tail: int, store: str, folder: Path) -> Restart:
    command = python("restart", mode, keys, tail, store, folder)
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"restart {mode} ended with {done.returncode}: {done.stderr[-2_000:]}")
    told = msgspec.json.decode(done.stdout.splitlines()[-1], type=Restart)
    whole = (keys, 0, keys + tail - 1)
    if (told.accounts, told.balance, told.source_offset) != whole:
        raise WrongTotals(f"{mode} from {store}: {told}, not {whole}")
    return told


def _copied(folder: Path) -> int:
    """The same snapshot into S3; its size."""
    disk, s3 = store_of("disk", folder), store_of("s3", folder)
    return sum(s3.put(name, disk.get(name)) for name in disk.list(PREFIX))


def _figures(runs: list[Restart]) -> dict[str, Any]:
    return {
        "seconds": round(median(one.owning_s for one in runs), 2),
        "program_s": round(median(one.loaded_s for one in runs), 2),
        "join_and_snapshot_s": round(median(one.restored_s - one.loaded_s for one in runs), 2),
        "tail_and_claim_s": round(median(one.owning_s - one.restored_s for one in runs), 2),
        "runs": [msgspec.to_builtins(one) for one in runs],
    }
