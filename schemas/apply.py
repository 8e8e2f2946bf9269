"""Make Kafka and the registry as the catalogue says: `apply(settings)`.

Reads first, writes after: what there is to do is one `Report`, and with nothing to do nothing
is written (a few requests, well under a second). Schemas are registered before topics change,
so a refused schema leaves Kafka as it was. Never done here: changing a partition count, and
deleting anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from confluent_kafka.error import KafkaError

from schemas.catalog import system_of, topics
from schemas.registry import RegistryClient, Subject, subjects
from streams.runtime.kafka import admin
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

_TIMEOUT_S = 15.0
_DEAD_LETTER_HEADROOM_BYTES = 64 * 1024
_MESSAGE_MAX_BYTES = 1_048_588
"""Kafka's default `max.message.bytes`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One Kafka topic as it should be."""

    name: str
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One topic setting that differs from the catalogue."""

    topic: str
    key: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A number that is another than declared and that cannot be changed in place."""

    topic: str
    declared: int
    actual: int


@dataclass(frozen=True)
class Report:
    """What there is to do (or, from `apply`, what was done), and what needs a person.

    `unknown` are topics under our prefixes that nobody declares; `replicas` are topics whose
    replication factor differs from the settings (kafka-reassign-partitions changes it).
    """

    create: tuple[Wanted, ...] = ()
    alter: tuple[ConfigChange, ...] = ()
    register: tuple[Subject, ...] = ()
    partitions: tuple[Difference, ...] = ()
    replicas: tuple[Difference, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def changes(self) -> int:
        """How many things differ that `apply` changes."""
        return len(self.create) + len(self.alter) + len(self.register)


class PartitionsDiffer(Exception):
    """A topic has another number of partitions than declared; nothing was changed."""

    def __init__(self, differences: tuple[Difference, ...]) -> None:
        self.differences = differences
        lines = [f"{d.topic}: declared {d.declared}, actual {d.actual}" for d in differences]
        super().__init__("\n".join([*lines, *_MIGRATION]))


_MIGRATION = (
    "A key's partition is murmur2(key) modulo the number of partitions: with another number, "
    "keys move, their old events stay where they were, and the order per key is gone.",
    "Either declare the actual number in topics.toml, or migrate: declare a new topic "
    "(for example ads.events_v2) with the new number, copy the old one into it in log order per "
    "key, rebuild the read models on it, switch the producers, then delete the old topic.",
)


def apply(settings: Settings, declared: Iterable[Topic] | None = None) -> Report:
    """Create and configure topics and register schemas; returns what was changed.

    `declared` is the whole catalogue by default. Raises `PartitionsDiffer` before anything is
    changed, `KafkaException`, `RegistryUnavailable` or `RegistryRefused`. Safe to repeat and
    to run twice at the same time.
    """
    client = admin(settings.kafka)
    with RegistryClient(settings.registry) as registry:
        report = _plan(settings, declared, client, registry)
        if report.partitions:
            raise PartitionsDiffer(report.partitions)
        for subject in report.register:
            registry.register(subject)
    _create(client, report.create, settings.kafka.replication_factor)
    _alter(client, report.alter)
    return report


def plan(settings: Settings, declared: Iterable[Topic] | None = None) -> Report:
    """What `apply` would do; changes nothing. Raises `KafkaException`, `RegistryError`."""
    with RegistryClient(settings.registry) as registry:
        return _plan(settings, declared, admin(settings.kafka), registry)


def wanted(topic: Topic, replication_factor: int) -> Iterator[Wanted]:
    """The Kafka topics that one declared topic stands for: itself, dead letters, late rows.

    All carry LogAppendTime: a record's timestamp is the broker's, whatever producers claim.
    """
    base = {
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(max(1, replication_factor - 1)),
        "retention.ms": str(topic.retention_ms),
    }
    own = {**base, "cleanup.policy": topic.cleanup_policy, **topic.extra}
    yield Wanted(topic.name, topic.partitions, own)
    largest = int(own.get("max.message.bytes", _MESSAGE_MAX_BYTES))
    # A dead letter is the whole bad record and why: it must fit where the record just did.
    room = {"max.message.bytes": str(largest + _DEAD_LETTER_HEADROOM_BYTES)}
    side = {**base, "cleanup.policy": "delete", **room}
    yield Wanted(topic.dead_letters, topic.partitions, side)
    if topic.event_time is not None:
        yield Wanted(topic.late, topic.partitions, side)


def _plan(
    settings: Settings,
    declared: Iterable[Topic] | None,
    client: AdminClient,
    registry: RegistryClient,
) -> Report:
    chosen = tuple(topics().values() if declared is None else declared)
    factor = settings.kafka.replication_factor
    want = {w.name: w for topic in chosen for w in wanted(topic, factor)}
    actual = client.list_topics(timeout=_TIMEOUT_S).topics
    there = [w for w in want.values() if w.name in actual]
    counts = {w.name: len(actual[w.name].partitions) for w in there}
    replicas = {w.name: len(actual[w.name].partitions[0].replicas) for w in there}
    ours = {system_of(topic.name) for topic in chosen}
    return Report(
        create=tuple(w for w in want.values() if w.name not in actual),
        alter=tuple(_config_changes(client, there)),
        register=tuple(s for t in chosen for s in subjects(t) if not registry.complete(s)),
        partitions=_differences({w.name: w.partitions for w in there}, counts),
        replicas=_differences(dict.fromkeys(replicas, factor), replicas),
        unknown=tuple(sorted(n for n in actual if system_of(n) in ours and n not in want)),
    )


def _differences(declared: Mapping[str, int], actual: Mapping[str, int]) -> tuple[Difference, ...]:
    return tuple(
        Difference(name, number, actual[name])
        for name, number in declared.items()
        if actual[name] != number
    )


def _config_changes(client: AdminClient, there: list[Wanted]) -> Iterator[ConfigChange]:
    if not there:  # librdkafka refuses an empty question
        return
    resources = {w.name: ConfigResource(ResourceType.TOPIC, w.name) for w in there}
    answers = client.describe_configs(list(resources.values()), request_timeout=_TIMEOUT_S)
    for w in there:
        current = answers[resources[w.name]].result(_TIMEOUT_S)
        for key, value in w.config.items():
            before = current[key].value if key in current else None
            if before != value:
                yield ConfigChange(w.name, key, before, value)


def _create(client: AdminClient, topics: tuple[Wanted, ...], replication_factor: int) -> None:
    if not topics:
        return
    new = [
        NewTopic(
            w.name,
            num_partitions=w.partitions,
            replication_factor=replication_factor,
            config=dict(w.config),
        )
        for w in topics
    ]
    for future in client.create_topics(new, operation_timeout=_TIMEOUT_S).values():
        try:
            future.result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another apply won
                raise


def _alter(client: AdminClient, changes: tuple[ConfigChange, ...]) -> None:
    if not changes:
        return
    entries: dict[str, list[ConfigEntry]] = {}
    for change in changes:
        entry = ConfigEntry(change.key, change.after, incremental_operation=AlterConfigOpType.SET)
        entries.setdefault(change.topic, []).append(entry)
    resources = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=of_topic)
        for name, of_topic in entries.items()
    ]
    for future in client.incremental_alter_configs(resources).values():
        future.result(_TIMEOUT_S)
