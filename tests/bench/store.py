"""Removing what benchmarks leave behind: topics, subjects, groups and read models of ours."""

from __future__ import annotations

import time
from collections.abc import Iterable

import httpx
from confluent_kafka import KafkaException

from schemas.apply import wanted
from schemas.registry import RegistryClient, subjects
from sinks.drivers.redis import connect
from streams.runtime import kafka
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

PREFIX = "bench"
_TIMEOUT_S = 15.0
_PAGE = 1_000


def drop_topics(settings: Settings, topics: Iterable[Topic]) -> None:
    """Delete these topics with their side topics and subjects; returns when they are gone."""
    given = list(topics)
    _drop(settings, {w.name for topic in given for w in wanted(topic, 1)})
    with RegistryClient(settings.registry) as registry:
        for subject in (subject for topic in given for subject in subjects(topic)):
            registry.delete(subject.name)


def _drop(settings: Settings, names: set[str]) -> None:
    admin = kafka.admin(settings.kafka)
    there = names & set(admin.list_topics(timeout=_TIMEOUT_S).topics)
    if not there:
        return
    for future in admin.delete_topics(list(there), operation_timeout=_TIMEOUT_S).values():
        future.result(_TIMEOUT_S)
    deadline = time.monotonic() + _TIMEOUT_S
    while there & set(admin.list_topics(timeout=_TIMEOUT_S).topics):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still there: {sorted(there)}")
        time.sleep(0.1)


def drop_read_model(settings: Settings, name: str) -> int:
    """Delete every key of a read model in Redis, and its consumer group; returns the keys."""
    client = connect(settings.redis.url.get_secret_value())
    dropped = 0
    for pattern in (f"{{{name}}}:*", f"{{{name}:*}}:*"):
        found = list(client.scan_iter(match=pattern, count=_PAGE))
        for at in range(0, len(found), _PAGE):
            dropped += client.unlink(*found[at : at + _PAGE])
    client.close()
    _drop_group(settings, name)
    return dropped


def _drop_group(settings: Settings, name: str) -> None:
    """A group that is not there, or that a killed process has not left yet, is left alone."""
    admin = kafka.admin(settings.kafka)
    for future in admin.delete_consumer_groups([name], request_timeout=_TIMEOUT_S).values():
        try:
            future.result(_TIMEOUT_S)
        except KafkaException:
            continue


def clean(settings: Settings) -> list[str]:
    """Delete everything whose name begins with `bench.` or `bench-`; returns what it was."""
    names = kafka.admin(settings.kafka).list_topics(timeout=_TIMEOUT_S).topics
    topics = {name for name in names if name.startswith(f"{PREFIX}.")}
    _drop(settings, topics)
    answer = httpx.get(f"{settings.registry.url.rstrip('/')}/subjects", timeout=_TIMEOUT_S)
    held = [s for s in answer.raise_for_status().json() if s.startswith(f"{PREFIX}.")]
    with RegistryClient(settings.registry) as registry:
        for subject in held:
            registry.delete(subject)
    keys = drop_read_model(settings, f"{PREFIX}-*")
    return [*sorted(topics), *held, f"{keys} keys"]
