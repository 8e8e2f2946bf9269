"""`bench decider`: decisions a second of one partition, and how long a restore takes.

Each decision is a transfer: a command read from Kafka, decided, its event written to Kafka and read
back. A restore reads a snapshot of a million keys from disk into a state that can be decided on.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from connectors.encode import Encoder
from schemas.apply import apply
from schemas.registry import schema_ids
from streams.runtime import kafka
from streams.runtime.decider.archive import Archive, Logs
from streams.runtime.decider.folded import CLOCK, KEYS, Known
from streams.runtime.decider.ports import Last
from streams.runtime.decider.rules import Decider, Envelope
from streams.runtime.decider.snapshot_store import LocalStore
from streams.runtime.decider.state import Image
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.position import FilterState
from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.measure import broker_process, python, run
from tests.bench.store import drop_topics
from tests.bench.transfers import commands, decider

RECORDS = 500_000
KEYS_RESTORED = 1_000_000


class Undecided(AssertionError):
    """Not every command led to an accepted transfer."""


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result."""
    settings, records = Settings.read(), records or RECORDS
    one = decider(records)
    broker, measured = broker_process(settings), []
    for turn in range(runs):
        fill(settings, one, records)
        measured.append(run(python("decider", records), broker=broker))
        if measured[-1].finish.count != records:
            raise Undecided(f"{measured[-1].finish.count} of {records} transfers")
        report.console.print(
            f"  {turn + 1}/{runs} {measured[-1].rate:>10,.0f} decisions/s  "
            f"load {measured[-1].load_1min:.1f}, others {measured[-1].others_cpu_s:.1f} s"
        )
    drop_topics(settings, [one.commands, one.events])
    per_million = 1e6 / records
    result = {
        "records": records,
        "decisions_per_s": round(median(each.rate for each in measured)),
        "cpu_s_per_million": round(median(each.finish.cpu_s for each in measured) * per_million, 2),
        "restore": restore(KEYS_RESTORED),
        "runs": [msgspec.to_builtins(each, str_keys=True) for each in measured],
    }
    rows = [
        ("decisions/s, one partition", result["decisions_per_s"]),
        ("CPU s per million", result["cpu_s_per_million"]),
        *((f"snapshot: {name}", value) for name, value in result["restore"].items()),
    ]
    report.table(f"{records:,} transfers", ("median", "value"), rows)
    report.save("decider", result)
    return result


def fill(settings: Settings, one: Decider, records: int) -> None:
    """Make both topics anew; the command topic full, the event topic empty."""
    drop_topics(settings, [one.commands, one.events])
    apply(settings, [one.commands, one.events])
    write = Encoder(one.commands, schema_ids(one.commands, settings.registry)).writer("Transfer")
    producer = kafka.producer(settings.kafka)
    for n, row in enumerate(commands(records)):
        key, value = write(row)
        headers = envelope_headers(Envelope(f"{n:032x}"))
        while True:
            try:
                producer.produce(one.commands.name, value, key, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def restore(keys: int) -> dict[str, float]:
    """Seconds to copy, write and restore a state of so many keys, and its size."""
    one = decider(keys)
    balances = {f"account-{n}": n for n in range(keys)}
    known = {f"key-{n}": Known("f" * 32, n, n, 201, b'{"amount":1}') for n in range(keys // 10)}
    image = Image({"balances": balances, KEYS: known, CLOCK: {"": keys}}, {})
    last, logs = Last(9, b"value", []), Logs("c", "e", 0, 10)
    with TemporaryDirectory() as folder:
        archive = Archive(one, LocalStore(Path(folder)))
        written = archive.keep(0, image, FilterState(1, "00" * 16, 3, 4), last, logs)
        began = time.perf_counter()
        folded = archive.newest(0, logs, lambda _: last)
        restored = time.perf_counter() - began
    began = time.perf_counter()
    copied = folded.image()
    copy = time.perf_counter() - began
    if copied != image:
        raise Undecided("the restored state is another one")
    return {
        "keys": keys + keys // 10,
        "bytes": written.size,
        "copy_s": round(copy, 3),
        "write_s": round(written.seconds, 2),
        "restore_s": round(restored, 2),
    }
