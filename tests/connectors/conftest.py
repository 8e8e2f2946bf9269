"""Real topics of the catalogue, under names of this test run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import NewTopic

from schemas.ads import events
from schemas.registry import RegistryClient, Subject
from streams.runtime.kafka import admin
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings.read()


@pytest.fixture
def topic(settings: Settings) -> Iterator[Topic]:
    """A copy of `ads.events` that exists in the cluster and in the registry."""
    made = replace(events.EVENTS, name=f"test-connectors-{uuid.uuid4().hex[:8]}")
    client = admin(settings.kafka)
    client.create_topics([NewTopic(made.name, made.partitions, 1)])[made.name].result(10)
    subjects = [Subject(made.subject(r), r.fullname, (r.avsc,)) for r in made.records]
    with RegistryClient(settings.registry) as registry:
        for subject in subjects:
            registry.register(subject)
        yield made
        for subject in subjects:
            registry.delete(subject.name)
    client.delete_topics([made.name])[made.name].result(10)
