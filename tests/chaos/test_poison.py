"""Records that cannot be processed: all good ones are, all bad ones are kept with their bytes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chaos.load import Load, clicks
from tests.chaos.poison import broken, deadly, fatal
from tests.chaos.recount import records
from tests.chaos.rig import Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

CONNECT = "__connect.errors."


def letters(rig: Rig, agent: str) -> list[Any]:
    """The dead letter topic, without repeats of the same source record."""
    found: dict[tuple[str, str], Any] = {}
    for messages in records(
        rig.settings.kafka.bootstrap_servers, rig.topic(agent).dead_letters
    ).values():
        for message in messages:
            about = dict(message.headers())
            found[about[CONNECT + "partition"], about[CONNECT + "offset"]] = message
    return list(found.values())


def test_poison_is_kept_and_everything_else_counted(rigs: Callable[..., Rig]) -> None:
    seed = 3
    rig = rigs(seed)
    rig.create("windows")
    load = Load(
        rig.settings.kafka.bootstrap_servers, rig.topic("windows"), rig.schema_ids("windows")
    )
    sink, worker = rig.sink("windows"), rig.worker("windows")
    pills = [*broken(load.encode), *fatal(load.encode)]
    assert len(pills) >= 20
    traffic = clicks(seed, 100 * len(pills), hostile=False)
    for kind, value in pills:
        load.send(next(traffic) for _ in range(100))
        load.raw(b"u", value, [("poison", kind.encode())])
        rig.faults["poison"] += 1
    load.raw(b"gone", None)
    load.send(traffic)
    load.done()
    rig.drained("windows", sink)
    for kind, value in (("empty and alone", b""), ("gone and alone", None)):
        headers = [("poison", kind.encode())] if value is not None else []
        pills += [(kind, value)] if value is not None else []
        load.raw(b"u", value, headers)
        load.done()
        rig.drained("windows", sink)
    assert worker.ready() and worker.process.poll() is None
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    kept = letters(rig, "windows")
    rig.seen["quarantined"] = len(kept)
    assert verdict.fates["quarantined"] == len(pills)
    sent = Counter((kind.encode(), value) for kind, value in pills)
    assert Counter((dict(m.headers())["poison"], m.value() or b"") for m in kept) == sent
    for message in kept:
        about = dict(message.headers())
        assert message.key() == b"u"
        assert about[CONNECT + "topic"].decode() == rig.topic("windows").name
        assert about[CONNECT + "exception.message"]
        assert about[CONNECT + "exception.class.name"]
    rig.report("T11 poison", verdict, "quarantined", kinds=len(pills))


def test_a_record_that_kills_the_process_is_quarantined(rigs: Callable[..., Rig]) -> None:
    seed = 4
    rig = rigs(seed, kafka_config={"session.timeout.ms": "6000"})
    rig.create("windows")
    load = Load(
        rig.settings.kafka.bootstrap_servers, rig.topic("windows"), rig.schema_ids("windows")
    )
    sink = rig.sink("windows")
    load.send(clicks(seed, 400, hostile=False))
    load.raw(b"u", deadly(load.encode), [("poison", b"deadly")])
    load.send(clicks(seed + 1, 400, hostile=False))
    load.done()
    rig.faults["deadly"] = 1
    supervisor = rig.supervised("windows")
    rig.drained("windows", sink)
    assert supervisor.process.poll() is None
    rig.seen["death"] = supervisor.said("worker died")
    rig.seen["quarantined"] = len(letters(rig, "windows"))
    assert rig.seen["death"] == 2, "quarantined on the third start"
    assert supervisor.end() == 0
    # A restart replays what is still open, the deadly record included.
    supervisor.start()
    load.send(clicks(seed + 2, 100, hostile=False))
    load.done()
    rig.drained("windows", sink)
    assert supervisor.said("worker died") == 2, "the record is remembered"
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    assert verdict.fates["quarantined"] == rig.seen["quarantined"] == 1
    assert verdict.records == 901
    rig.report("T11 deadly", verdict, "death", "quarantined")


def test_late_repeated_and_shuffled_rows_have_their_fates(rigs: Callable[..., Rig]) -> None:
    seed = 5
    rig = rigs(seed)
    rig.create("windows")
    load = Load(
        rig.settings.kafka.bootstrap_servers, rig.topic("windows"), rig.schema_ids("windows")
    )
    sink = rig.sink("windows")
    rig.worker("windows", rows_max=500)
    load.send(shuffled(seed, clicks(seed, 20_000)))
    load.done()
    rig.drained("windows", sink)
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    rig.seen.update(verdict.fates)
    late = records(rig.settings.kafka.bootstrap_servers, rig.topic("windows").late)
    assert sum(map(len, late.values())) == verdict.fates["late"]
    rig.report("T11 fates", verdict, "late", "duplicate", "filtered", "applied")


def shuffled(seed: int, rows: Iterator[Any], within: int = 1_000) -> Iterator[Any]:
    """The same rows, each up to `within` places away from its own."""
    chance, held = random.Random(seed), []
    for one in rows:
        held.append(one)
        if len(held) > within:
            yield held.pop(chance.randrange(len(held)))
    chance.shuffle(held)
    yield from held
