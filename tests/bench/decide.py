"""`bench decide`: what a decider does in a second, how soon it answers, how soon it is back.

- Decisions a second of one partition: each a command read from Kafka, decided, its event written to
  Kafka and read back.
- Reply latency over HTTP (`verdicts`).
- Restart with a million keys (`restart`).
"""

from __future__ import annotations

from typing import Any

from streams.runtime.settings import Settings
from tests.bench import report, restart, transfers, verdicts
from tests.bench.measure import Run, broker_process, python
from tests.bench.serving import settings_of_api
from tests.bench.store import drop_topics
from tests.bench.turns import Contender, WrongTotals, figures, take_turns

RECORDS = 500_000
KEYS = 1_000_000
TAIL = 50_000
NOTES = (
    "Profiles (py-spy, all threads) before the work: a transfer of `payments` cost 1.9 ms of "
    "processor time to decode alone, as columns of one row; now 12 microseconds, read singly. A "
    "quarter of an API request was the signature of the same token; now it is checked once. Each "
    "read of the decider went through the event loop and a Faust channel, half a millisecond of "
    "it; now the pump's thread takes it from the readers. Of the 15 microseconds of processor time "
    "that a decision cost then, 3 were librdkafka's producer spinning while it waited for "
    "acknowledgements and 1.2 one produce() for each event. Events now go in "
    "batches through the native library, with one request in flight, commands and events are read "
    "as columns, and 2,048 decisions are in flight.",
    "Of a verdict at 1,000 commands/s (traced, medians, milliseconds): 1 until the log has the "
    "command, 7 (90 %: 20) until the decider has it, 2 until its event is read back, 0.5 until the "
    "verdict is published; the rest is the API's event loop. What the 99th percentile of a single "
    "API process is made of, and why it differs so much from run to run, is not known.",
    "What an API process spends on a command, each part run alone on a busy machine: 275 "
    "microseconds in the application, 150 in the producer (40 % of it in librdkafka's threads), 60 "
    "in hearing the verdict from Redis; the rest is the HTTP server. A request was 2,440 Python "
    "calls and is 1,580, most of them FastAPI's solving of dependencies.",
    "Load generator, broker, API and decider share the machine; `cores` says what each took. "
    "`sent_late_ms` is how late the generator was; it is part of the latency.",
)


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print tables, write the result file; returns the result. `records` scales all."""
    settings = Settings.read()
    decisions = _decisions(settings, runs, records or RECORDS)
    replies = verdicts.measure(settings, runs, records and records // 50)
    keys = KEYS if records is None else records
    back = restart.measure(settings, runs, keys, min(TAIL, keys))
    result = {
        "decisions": decisions,
        "api": settings_of_api(),
        "replies": replies,
        "restart": back,
        "notes": NOTES,
    }
    _print(result)
    report.save("decide", result)
    return result


def _decisions(settings: Settings, runs: int, records: int) -> dict[str, Any]:
    one = transfers.decider(records)

    def check(done: Run) -> None:
        if done.finish.count != records:
            raise WrongTotals(f"{done.finish.count} of {records} transfers")

    contender = Contender(
        "decisions, one partition",
        python("decide", records),
        lambda: transfers.fill(settings, one, transfers.commands(records)),
        check,
    )
    measured = take_turns({"decide": contender}, runs, broker_process(settings))
    drop_topics(settings, [one.commands, one.events])
    return figures(contender.title, measured["decide"])


def _print(result: dict[str, Any]) -> None:
    decisions = result["decisions"]
    rows = [
        ("decisions/s, one partition", decisions["events_per_s"]),
        ("CPU s per million", decisions["cpu_s_per_million"]),
        ("broker CPU s per million", decisions["broker_cpu_s_per_million"]),
    ]
    report.table(f"{decisions['events']:,} transfers", ("median", "value"), rows)
    keys = ("p50", "p90", "p99", "p99.9")
    shown = [
        (
            f"{one['rate']:,} commands/s, {one['api_processes']} API process(es)",
            *(one["per_s"], *(one["ms"][key] for key in keys)),
            *(one["refused"], one["cores"].get("load generator")),
        )
        for one in result["replies"]
    ]
    columns = ("command → verdict, ms", "verdicts/s", *keys, "refused", "generator, cores")
    report.table("latency over HTTP from the intended send time", columns, shown)
    back = result["restart"]
    parts = ("seconds", "program_s", "join_and_snapshot_s", "tail_and_claim_s")
    report.table(
        f"restart with {back['accounts']:,} keys, {back['snapshot_bytes'] / 2**20:.1f} MiB",
        ("from", "seconds", "program", "join + snapshot", "tail + claim"),
        [(name, *(one[part] for part in parts)) for name, one in back["stores"].items()],
    )
