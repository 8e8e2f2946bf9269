"""The log changes its shape or its schema under a worker: it goes on right, or stops loudly."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from schemas.registry import RegistryClient, RegistryRefused, Subject
from streams.runtime.kafka import partition_of
from streams.runtime.supervisor import EXIT_DECISION
from tests.chaos.load import Load, clicks
from tests.chaos.rig import Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def load_of(rig: Rig) -> Load:
    return Load(
        rig.settings.kafka.bootstrap_servers, rig.topic("windows"), rig.schema_ids("windows")
    )


def test_retention_that_passed_the_position_stops_the_worker(rigs: Callable[..., Rig]) -> None:
    rig = rigs(40)
    rig.create("windows")
    sink, load = rig.sink("windows"), load_of(rig)
    worker = rig.supervised("windows")
    load.send(clicks(rig.seed, 4_000))
    load.done()
    rig.drained("windows", sink)
    assert worker.end() == 0
    positions = rig.positions(sink)
    load.send(clicks(rig.seed + 1, 4_000))
    load.done()
    cut = [TopicPartition(load.topic.name, p, one.next_offset + 5) for p, one in positions.items()]
    for future in rig.admin.delete_records(cut).values():
        future.result(15)
    rig.faults["retention past the position"] += 1
    worker.start()
    assert worker.process.wait(60) == EXIT_DECISION
    rig.seen["said why"] = worker.said("retention has deleted it up to")
    assert rig.positions(sink) == positions, "nothing behind the gap is stored"
    rig.tell(f"T15 retention: seed={rig.seed} faults={dict(rig.faults)} silent_skips=0 "
             f"sometimes={dict(rig.seen)}")  # fmt: skip
    assert rig.seen["said why"]


def test_more_partitions_stop_the_worker(rigs: Callable[..., Rig]) -> None:
    rig = rigs(41, kafka_config={"topic.metadata.refresh.interval.ms": "1000"})
    rig.create("windows")
    sink, load = rig.sink("windows"), load_of(rig)
    worker = rig.supervised("windows")
    load.send(clicks(rig.seed, 4_000))
    load.done()
    rig.drained("windows", sink)
    more = {load.topic.name: NewPartitions(load.topic.name, load.topic.partitions + 2)}
    for future in rig.admin.create_partitions([*more.values()]).values():
        future.result(15)
    rig.faults["partitions added"] += 1
    assert worker.process.wait(60) == EXIT_DECISION
    rig.seen["said why"] = worker.said("the catalogue says")
    rig.tell(f"T15 partitions: seed={rig.seed} faults={dict(rig.faults)} silent_skips=0 "
             f"sometimes={dict(rig.seen)}")  # fmt: skip
    assert rig.seen["said why"]


def test_gaps_of_transactions_are_no_records(rigs: Callable[..., Rig]) -> None:
    """Markers and aborted records take offsets and are nothing to fold."""
    rig = rigs(42)
    rig.create("windows")
    sink, load = rig.sink("windows"), load_of(rig)
    rig.worker("windows", rows_max=300)
    rows = clicks(rig.seed, 20_000)
    for number in range(12):
        # One producer each: librdkafka's second transaction sometimes meets the end of the first.
        client = Producer(
            {
                "bootstrap.servers": rig.settings.kafka.bootstrap_servers,
                "transactional.id": f"{rig.run}-{number}",
                "partitioner": "murmur2_random",
            }
        )
        client.init_transactions(30)
        client.begin_transaction()
        for kind, key, row in islice(rows, 700):
            client.produce(load.topic.name, load.encode(kind, row), key)
        client.flush(30)  # aborted or not, they are in the log
        if number % 3 == 1:
            client.abort_transaction(30)
            rig.faults["aborted"] += 1
        else:
            client.commit_transaction(30)
            rig.faults["committed"] += 1
    load.send(rows)  # so that no log ends with a marker
    load.done()
    rig.drained("windows", sink)
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    gaps = sum(rig.ends(load.topic.name).values()) - verdict.records
    rig.seen["offsets without records"] = gaps
    rig.report("T15 gaps", verdict, "offsets without records")


def test_writers_of_two_schema_versions(rigs: Callable[..., Rig]) -> None:
    """A compatible version mixes with the old one; a breaking one is refused by the registry."""
    rig = rigs(43)
    rig.create("windows")
    sink, load = rig.sink("windows"), load_of(rig)
    rig.worker("windows", rows_max=1_000)
    (record,) = (r for r in load.topic.records if r.name == "AdClicked")
    newer: dict[str, Any] = json.loads(record.avsc)
    newer["fields"].append(
        {"name": "placement", "type": ["null", "string"], "default": None, "doc": "Where."}
    )
    broken: dict[str, Any] = json.loads(record.avsc)
    broken["fields"] = [f for f in broken["fields"] if f["name"] != "campaign_id"]
    subject = load.topic.subject(record)
    with RegistryClient(rig.settings.registry) as registry:
        number = registry.register(
            Subject(subject, record.fullname, (record.avsc, json.dumps(newer)))
        )
        with pytest.raises(RegistryRefused):
            registry.register(Subject(subject, record.fullname, (json.dumps(broken),)))
        rig.faults["breaking version refused"] += 1
    old = load.encode
    new = Load(rig.settings.kafka.bootstrap_servers, load.topic, rig.schema_ids("windows")).encode
    new._schemas["AdClicked"] = fastavro.parse_schema(newer)
    new._ids["AdClicked"] = number
    for index, (kind, key, row) in enumerate(clicks(rig.seed, 12_000, hostile=False)):
        if kind == "AdClicked" and partition_of(key, 2):
            load.raw(key.encode(), new(kind, row | {"placement": f"p{index % 3}"}))
            rig.faults["rows of the new version"] += 1
        else:
            load.raw(key.encode(), old(kind, row))
    load.done()
    rig.drained("windows", sink)
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    rig.seen["both versions"] = rig.faults["rows of the new version"]
    rig.report("T13 versions", verdict, "both versions")
