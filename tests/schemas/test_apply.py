"""`apply`: Kafka and the registry become as declared, and nothing moves by itself."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from schemas.apply import (
    ConfigChange,
    Difference,
    KafkaUnavailable,
    PartitionsDiffer,
    apply,
    plan,
    wanted,
)
from schemas.catalog import derived, topic
from schemas.registry import RegistryClient, RegistryRefused, RegistryUnavailable, schema_ids
from schemas.registry import subjects as subjects_of
from streams.runtime.kafka import admin
from streams.runtime.settings import Kafka, Registry, Settings
from streams.runtime.topic import RecordType, Topic

ADS = topic("ads.events")


def test_a_topic_stands_for_three() -> None:
    own, dead, late = wanted(ADS, 1)
    assert [own.name, dead.name, late.name] == [ADS.name, ADS.dead_letters, ADS.late]
    assert own.config == {
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "cleanup.policy": "delete",
    }


def test_without_event_time_nothing_is_late() -> None:
    names = [w.name for w in wanted(dataclasses.replace(ADS, event_time=None), 1)]
    assert names == [ADS.name, ADS.dead_letters]


def test_what_fits_the_topic_fits_its_dead_letters() -> None:
    large = dataclasses.replace(ADS, extra={"max.message.bytes": "5000000"})
    for declared in (ADS, large):
        own, dead, late = wanted(declared, 1)
        limit = int(own.config.get("max.message.bytes", "1048588"))
        assert int(dead.config["max.message.bytes"]) > limit
        assert int(late.config["max.message.bytes"]) > limit


def test_retry_topics_have_the_partitions_of_the_source_and_outlast_their_delay() -> None:
    day_ms = 86_400_000
    retries = {"mailer": (1_500, 5_000, 300_000), "pager": (3 * day_ms,)}
    declared = dataclasses.replace(ADS, event_time=None, retention_ms=1_000, retries=retries)
    own, dead, *found = wanted(declared, 1)
    names = ["mailer.retry.1500ms", "mailer.retry.5s", "mailer.retry.5m", "pager.retry.3d"]
    assert [w.name for w in found] == names
    assert list(derived(declared)) == [dead.name, *names]
    assert {w.partitions for w in found} == {own.partitions}
    assert {w.config["cleanup.policy"] for w in found} == {"delete"}
    kept = [int(w.config["retention.ms"]) for w in found]
    assert kept == [7 * day_ms] * 3 + [12 * day_ms]
    room = {w.config["max.message.bytes"] for w in found}
    assert room == {dead.config["max.message.bytes"]}


def test_dead_letters_of_a_compacted_topic_are_kept() -> None:
    own, dead, _ = wanted(dataclasses.replace(ADS, cleanup_policy="compact"), 1)
    assert own.config["cleanup.policy"] == "compact"
    assert dead.config["cleanup.policy"] == "delete"


@pytest.mark.parametrize(("replicas", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (5, "4")])
def test_one_broker_may_fail(replicas: int, in_sync: str) -> None:
    assert {w.config["min.insync.replicas"] for w in wanted(ADS, replicas)} == {in_sync}


# Against the real broker and registry, under names of our own.


@pytest.fixture(scope="module")
def settings() -> Settings:
    return Settings.read()


@pytest.fixture(scope="module")
def client(settings: Settings) -> AdminClient:
    return admin(settings.kafka)


@pytest.fixture
def trial(settings: Settings, client: AdminClient) -> Iterator[Topic]:
    made = dataclasses.replace(ADS, name=f"trial{uuid4().hex[:8]}.events", partitions=2)
    yield made
    prefix = made.name.split(".")[0] + "."
    names = [name for name in client.list_topics(timeout=10).topics if name.startswith(prefix)]
    if names:
        for future in client.delete_topics(names).values():
            future.result(10)
    with RegistryClient(settings.registry) as registry:
        for subject in subjects_of(made):
            registry.delete(subject.name)


def config_of(client: AdminClient, name: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    answer = client.describe_configs([resource])[resource].result(10)
    return {key: entry.value for key, entry in answer.items()}


@pytest.mark.stack
def test_applying_creates_and_registers(
    settings: Settings, client: AdminClient, trial: Topic
) -> None:
    planned = plan(settings, [trial])
    assert trial.name not in client.list_topics(timeout=10).topics
    done = apply(settings, [trial])
    assert done == planned
    assert [w.name for w in done.create] == [trial.name, trial.dead_letters, trial.late]
    assert len(done.register) == 2
    for w in wanted(trial, settings.kafka.replication_factor):
        assert len(client.list_topics(w.name, timeout=10).topics[w.name].partitions) == 2
        assert config_of(client, w.name).items() >= w.config.items()
    assert schema_ids(trial, settings.registry).keys() == {r.fullname for r in trial.records}


@pytest.mark.stack
def test_applying_twice_changes_nothing(settings: Settings, trial: Topic) -> None:
    assert apply(settings, [trial]).changes == 5
    again = apply(settings, [trial])
    assert again.changes == 0
    assert (again.partitions, again.replicas, again.unknown) == ((), (), ())


@pytest.mark.stack
def test_two_may_apply_at_once(settings: Settings, trial: Topic) -> None:
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: apply(settings, [trial]), range(4)))
    assert {w.name for r in reports for w in r.create} >= {trial.name}
    assert apply(settings, [trial]).changes == 0


@pytest.mark.stack
def test_settings_follow_the_declaration(
    settings: Settings, client: AdminClient, trial: Topic
) -> None:
    apply(settings, [trial])
    shorter = dataclasses.replace(trial, retention_ms=86_400_000)
    done = apply(settings, [shorter])
    assert ConfigChange(trial.name, "retention.ms", "-1", "86400000") in done.alter
    assert config_of(client, trial.name)["retention.ms"] == "86400000"
    assert config_of(client, trial.name)["message.timestamp.type"] == "LogAppendTime"
    assert apply(settings, [shorter]).changes == 0


@pytest.mark.stack
def test_another_partition_count_stops_before_anything_changes(
    settings: Settings, client: AdminClient, trial: Topic
) -> None:
    apply(settings, [trial])
    more = dataclasses.replace(trial, partitions=3, retention_ms=1_000)
    assert Difference(trial.name, 3, 2) in plan(settings, [more]).partitions
    with pytest.raises(PartitionsDiffer, match="declared 3, actual 2") as caught:
        apply(settings, [more])
    assert "keys move" in str(caught.value)
    assert "migrate" in str(caught.value)
    assert len(client.list_topics(trial.name, timeout=10).topics[trial.name].partitions) == 2
    assert config_of(client, trial.name)["retention.ms"] == "-1"


@pytest.mark.stack
def test_a_refused_schema_leaves_kafka_as_it_was(
    settings: Settings, client: AdminClient, trial: Topic
) -> None:
    fine, broken = _record(), _record({"name": "price", "type": "int"})
    one = dataclasses.replace(trial, records=(fine,))
    try:
        apply(settings, [one])
        changed = dataclasses.replace(one, records=(broken,), retention_ms=1_000)
        with pytest.raises(RegistryRefused):
            apply(settings, [changed])
        assert config_of(client, trial.name)["retention.ms"] == "-1"
    finally:
        with RegistryClient(settings.registry) as registry:
            registry.delete(one.subject(fine))


def _record(*fields: dict[str, str]) -> RecordType:
    schema = {"type": "record", "name": "Tried", "namespace": "headrace.trial", "fields": fields}
    return RecordType("headrace.trial.Tried", json.dumps(schema), {}, dict)


@pytest.mark.stack
def test_topics_nobody_declares_are_named_and_left(
    settings: Settings, client: AdminClient, trial: Topic
) -> None:
    stranger = trial.name.replace(".events", ".old")
    client.create_topics([NewTopic(stranger, 1, 1)])[stranger].result(10)
    while stranger not in client.list_topics(timeout=10).topics:  # accepted, not yet shown
        time.sleep(0.02)
    assert apply(settings, [trial]).unknown == (stranger,)
    assert stranger in client.list_topics(timeout=10).topics


@pytest.mark.stack
def test_another_replication_factor_is_named(settings: Settings, trial: Topic) -> None:
    apply(settings, [trial])
    three = settings.model_copy(
        update={"kafka": settings.kafka.model_copy(update={"replication_factor": 3})}
    )
    assert Difference(trial.name, 3, 1) in plan(three, [trial]).replicas


@pytest.mark.stack
def test_without_a_registry_nothing_is_created(
    settings: Settings, client: AdminClient, trial: Topic
) -> None:
    nowhere = settings.model_copy(update={"registry": Registry(url="http://127.0.0.1:9/v7")})
    with pytest.raises(RegistryUnavailable):
        apply(nowhere, [trial])
    assert trial.name not in client.list_topics(timeout=10).topics


def test_without_kafka_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("schemas.apply._TIMEOUT_S", 0.2)
    nowhere = Settings(kafka=Kafka(bootstrap_servers="127.0.0.1:9"))
    with pytest.raises(KafkaUnavailable, match=r"127\.0\.0\.1:9"):
        plan(nowhere, [ADS])
    assert "Connect to" not in capfd.readouterr().err


@pytest.mark.stack
def test_a_refused_setting_is_named(settings: Settings, trial: Topic) -> None:
    with pytest.raises(KafkaException, match=r"segment\.nonsense"):
        apply(settings, [dataclasses.replace(trial, extra={"segment.nonsense": "1"})])
