"""Make Kafka and the registry as the catalogue says: `apply(settings)`.

Reads first, writes after: what there is to do is one `Report`, and with nothing to do nothing
is written (a few requests, well under a second). Schemas are registered before topics change,
so a refused schema leaves Kafka as it was. Never done here: changing a partition count, and
deleting anything.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)
from confluent_kafka.error import KafkaError

from schemas.catalog import system_of, topics
from schemas.registry import RegistryClient, Subject, subjects
from streams.runtime.kafka import client_config
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic, retry_topic

_TIMEOUT_S = 15.0
_SETTLE_INTERVAL_S = 0.05
_CRITICAL = 2
_REQUESTS_AT_ONCE = 8
"""Two requests for each subject, one after the other, would be what `apply` waits for."""
_DEAD_LETTER_HEADROOM_BYTES = 64 * 1024
_RETRY_KEPT_MS_MIN = 7 * 86_400_000
_RETRY_KEPT_DELAYS = 4
"""A task that waits for another try must outlast a reactor that is down for a while."""
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


class KafkaUnavailable(Exception):
    """The broker does not answer, or does not come to be as applied; the same may work later."""


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
    changed, `KafkaUnavailable`, `KafkaException` where Kafka refuses, `RegistryUnavailable` or
    `RegistryRefused`. Returns when the broker shows the changes. Safe to repeat and to run
    twice at the same time.
    """
    client = _admin(settings)
    with RegistryClient(settings.registry) as registry:
        report = _plan(settings, declared, client, registry)
        if report.partitions:
            raise PartitionsDiffer(report.partitions)
        for subject in report.register:
            registry.register(subject)
    _create(client, report.create, settings.kafka.replication_factor)
    _alter(client, report.alter)
    _settle(client, report)
    return report


def plan(settings: Settings, declared: Iterable[Topic] | None = None) -> Report:
    """What `apply` would do; changes nothing. Raises as `apply` does."""
    with RegistryClient(settings.registry) as registry:
        return _plan(settings, declared, _admin(settings), registry)


def wanted(topic: Topic, replication_factor: int) -> Iterator[Wanted]:
    """The Kafka topics that one declared topic stands for: itself and the `derived` ones.

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
    for reactor, delays_ms in topic.retries.items():
        for delay_ms in delays_ms:
            kept_ms = max(_RETRY_KEPT_MS_MIN, _RETRY_KEPT_DELAYS * delay_ms)
            kept = {**side, "retention.ms": str(kept_ms)}
            yield Wanted(retry_topic(reactor, delay_ms), topic.partitions, kept)


def _admin(settings: Settings) -> AdminClient:
    # librdkafka logs every attempt to connect to stderr; `KafkaUnavailable` says it once.
    return AdminClient(client_config(settings.kafka, log_level=_CRITICAL))


def _topics(client: AdminClient, servers: str) -> Mapping[str, TopicMetadata]:
    try:
        found: Mapping[str, TopicMetadata] = client.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise KafkaUnavailable(f"{servers}: {error.args[0].str()}") from error
    return found


def _plan(
    settings: Settings,
    declared: Iterable[Topic] | None,
    client: AdminClient,
    registry: RegistryClient,
) -> Report:
    chosen = tuple(topics().values() if declared is None else declared)
    factor = settings.kafka.replication_factor
    want = {w.name: w for topic in chosen for w in wanted(topic, factor)}
    actual = _topics(client, settings.kafka.bootstrap_servers)
    there = [w for w in want.values() if w.name in actual]
    counts = {w.name: len(actual[w.name].partitions) for w in there}
    replicas = {w.name: len(actual[w.name].partitions[0].replicas) for w in there}
    ours = {system_of(topic.name) for topic in chosen}
    return Report(
        create=tuple(w for w in want.values() if w.name not in actual),
        alter=tuple(_config_changes(client, there)),
        register=_incomplete(registry, [s for topic in chosen for s in subjects(topic)]),
        partitions=_differences({w.name: w.partitions for w in there}, counts),
        replicas=_differences(dict.fromkeys(replicas, factor), replicas),
        unknown=tuple(sorted(n for n in actual if system_of(n) in ours and n not in want)),
    )


def _incomplete(registry: RegistryClient, wanted: list[Subject]) -> tuple[Subject, ...]:
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        complete = list(pool.map(registry.complete, wanted))
    return tuple(s for s, done in zip(wanted, complete, strict=True) if not done)


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


def _settle(client: AdminClient, report: Report) -> None:
    """Wait until the broker shows what the controller has accepted: a moment, not at once."""
    deadline = time.monotonic() + _TIMEOUT_S
    altered: dict[str, dict[str, str]] = {}
    for change in report.alter:
        altered.setdefault(change.topic, {})[change.key] = change.after
    there = [Wanted(name, 0, config) for name, config in altered.items()]
    while report.create or report.alter:
        known = client.list_topics(timeout=_TIMEOUT_S).topics
        missing = [w.name for w in report.create if w.name not in known]
        pending = [f"{c.topic} {c.key}" for c in _config_changes(client, there)]
        if not missing and not pending:
            return
        if time.monotonic() > deadline:
            raise KafkaUnavailable(f"accepted but not yet in effect: {missing + pending}")
        time.sleep(_SETTLE_INTERVAL_S)
