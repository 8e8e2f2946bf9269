"""A topic of this test run with its dead letter topic, and letters to put into it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import NewTopic

from schemas.ads import events
from streams.runtime.kafka import admin
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings.read()


@pytest.fixture
def topic(settings: Settings) -> Iterator[Topic]:
    made = replace(events.EVENTS, name=f"test-dlq-{uuid.uuid4().hex[:8]}", partitions=3)
    client = admin(settings.kafka)
    names = [made.name, made.dead_letters]
    for future in client.create_topics([NewTopic(n, made.partitions, 1) for n in names]).values():
        future.result(10)
    yield made
    for future in client.delete_topics(names).values():
        future.result(10)
