"""A topic kept in memory: on a mock cluster, and where its log ends in what is no record."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from connectors.compacted import Book, Feed
from streams.runtime import kafka
from streams.runtime.avro import MemorySource
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic
from tests.runtime.avro.wire import CLICK, CLICK_DTYPES, clicks, record_type, topic
from tests.runtime.cluster import PARTITIONS, Cluster, until

SCHEMAS = MemorySource({1: CLICK})
CLICKS = topic(record_type(CLICK, CLICK_DTYPES))


class Clicks(Book):
    """The ids of all clicks, in the order they came."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    def fold(self, record: str, fields: Mapping[str, Any]) -> None:
        self.ids.append(fields["click_id"])


def ids(first: int, stop: int) -> list[str]:
    return [f"{n * 7919:032x}" for n in range(first, stop)]


async def test_all_that_is_there_is_read_before_it_is_entered() -> None:
    cluster = Cluster()
    cluster.put(1, *clicks(2_000))
    async with Feed(CLICKS, cluster.kafka, SCHEMAS, Clicks()) as feed:
        assert feed.book.complete
        assert feed.book.ids == ids(0, 2_000)
        cluster.put(1, *clicks(2_003)[2_000:])
        until(lambda: len(feed.book.ids) == 2_003)
        until(lambda: feed.book.next(CLICKS.name, 1) == 2_003)
    assert feed.book.ids == ids(0, 2_003)


async def test_an_empty_topic_is_whole() -> None:
    cluster = Cluster()
    cluster.create()
    async with Feed(CLICKS, cluster.kafka, SCHEMAS, Clicks()) as feed:
        assert feed.book.complete
        assert await feed.book.applied() in ({}, {(CLICKS.name, p): 0 for p in range(PARTITIONS)})


async def test_what_cannot_be_read_is_counted_and_nothing_else_is_lost() -> None:
    cluster = Cluster()
    first, second = clicks(2)
    cluster.put(0, first, b"\x00\x00\x00\x00\x01nothing", None, second)
    async with Feed(CLICKS, cluster.kafka, SCHEMAS, Clicks()) as feed:
        assert (feed.book.ids, feed.book.unreadable) == (ids(0, 2), 1)
        assert feed.book.complete


@pytest.mark.stack
async def test_a_log_may_end_in_what_is_no_record() -> None:
    """Behind the last record there is a transaction's marker; after compaction it may be a gap."""
    settings = Settings.read()
    own = replace(CLICKS, name=f"test.compacted.{uuid.uuid4().hex}", partitions=1)
    admin = kafka.admin(settings.kafka)
    admin.create_topics([NewTopic(own.name, 1, 1)])[own.name].result(30)
    try:
        _write_in_a_transaction(settings, own, clicks(3))
        async with Feed(own, settings.kafka, SCHEMAS, Clicks()) as feed:
            until(lambda: feed.book.next(own.name, 0) == 4)  # the marker may come a moment later
            until(lambda: feed.book.complete)
            assert feed.book.ids == ids(0, 3)
    finally:
        admin.delete_topics([own.name])[own.name].result(30)


def _write_in_a_transaction(settings: Settings, own: Topic, values: list[bytes]) -> None:
    more = {"transactional.id": own.name}
    producer = Producer(kafka.client_config(settings.kafka, **more))
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(own.name, value, partition=0)
    producer.commit_transaction(30)
