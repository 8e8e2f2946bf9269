"""Batches of records to a producer, through the native library and record by record, on
librdkafka's own mock cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from streams.runtime.native import Choice, sending
from streams.runtime.native.sending import FULL, BatchSender, Record, Sender
from tests.runtime.cluster import CHOICES, TOPIC, WAIT_S, Cluster, until

PARTITION = 2
HEADERS: list[tuple[str, Any]] = [("a", b"1"), ("nothing", None), ("a", b""), ("ü", b"\xff\0")]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.create()
    return made


@pytest.fixture(params=CHOICES)
def choice(request: pytest.FixtureRequest) -> Choice:
    chosen: Choice = request.param
    return chosen


@pytest.fixture
def opened(cluster: Cluster, choice: Choice) -> Callable[..., Sender]:
    return lambda **more: sending.opened(cluster.kafka, TOPIC, choice, **more)


def numbered(count: int) -> list[Record]:
    return [(b"key-%d" % n, b"value-%d" % n, [("n", b"%d" % n)]) for n in range(count)]


def written(cluster: Cluster, count: int) -> list[Record]:
    """The first records of the partition."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, PARTITION, 0)])
    found: list[Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), timeout=WAIT_S)
    consumer.close()
    return [(one.key(), one.value(), one.headers()) for one in found]


def test_the_native_library_is_used_where_it_is_asked_for(
    opened: Callable[..., Sender], choice: Choice
) -> None:
    assert isinstance(opened(), BatchSender) == (choice == "native")


def test_records_arrive_in_order_with_all_that_they_hold(
    cluster: Cluster, opened: Callable[..., Sender]
) -> None:
    records: list[Record] = [
        (b"k", b"v", HEADERS),
        (b"", b"", []),
        (b"\0", b"x" * 200_000, [("long", b"y" * 5_000)]),
        *numbered(2_000),
    ]
    sender = opened()
    assert sender.send(PARTITION, records) == (len(records), None)
    assert sender.producer.flush(WAIT_S) == 0
    assert sender.lost() is None
    found = written(cluster, len(records))
    assert [one[:2] for one in found] == [one[:2] for one in records]
    assert [one[2] or [] for one in found] == [one[2] for one in records]


def test_sending_begins_where_it_is_told(cluster: Cluster, opened: Callable[..., Sender]) -> None:
    sender, records = opened(), numbered(5)
    assert sender.send(PARTITION, records, 3) == (5, None)
    assert sender.producer.flush(WAIT_S) == 0
    assert written(cluster, 2) == records[3:]


def test_records_sent_alone_and_together_keep_their_order(
    cluster: Cluster, opened: Callable[..., Sender]
) -> None:
    sender, records = opened(), numbered(4)
    sender.send(PARTITION, records[:2])
    sender.producer.produce(TOPIC, b"alone", partition=PARTITION)
    sender.send(PARTITION, records[2:])
    assert sender.producer.flush(WAIT_S) == 0
    values = [value for _, value, _ in written(cluster, 5)]
    assert values == [b"value-0", b"value-1", b"alone", b"value-2", b"value-3"]


def test_a_full_queue_takes_the_rest_later(cluster: Cluster, opened: Callable[..., Sender]) -> None:
    sender, records = opened(**{"queue.buffering.max.messages": 10}), numbered(300)
    done, waited = 0, 0
    while done < len(records):
        done, error = sender.send(PARTITION, records, done)
        if error is not None:
            assert error.code() == FULL
            waited += 1
            sender.producer.poll(0.1)
    assert waited
    assert sender.producer.flush(WAIT_S) == 0
    assert sender.lost() is None
    assert written(cluster, len(records)) == records


def test_a_record_that_the_client_refuses_stops_the_batch(
    cluster: Cluster, opened: Callable[..., Sender]
) -> None:
    sender = opened(**{"message.max.bytes": 1_000})
    done, error = sender.send(PARTITION, [*numbered(2), (b"", b"x" * 2_000, []), *numbered(1)])
    assert done == 2
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert sender.producer.flush(WAIT_S) == 0
    assert written(cluster, 2) == numbered(2)


def test_a_loss_is_told_once(opened: Callable[..., Sender]) -> None:
    sender = opened(**{"linger.ms": 60_000})
    sender.send(PARTITION, numbered(3))
    assert sender.lost() is None
    sender.producer.purge()
    until(lambda: sender.producer.poll(0.05) or not len(sender.producer))
    lost = sender.lost()
    assert lost is not None
    assert lost.code() == KafkaError._PURGE_QUEUE
    assert sender.lost() is None


def test_a_loss_is_that_of_its_own_producer(opened: Callable[..., Sender]) -> None:
    one, other = (opened(**{"linger.ms": 60_000}) for _ in range(2))
    for sender in (one, other):
        sender.send(PARTITION, numbered(1))
    other.producer.purge()
    until(lambda: other.producer.poll(0.05) or not len(other.producer))
    assert one.lost() is None
    assert other.lost() is not None


def test_a_transaction_holds_what_was_sent_in_it(
    cluster: Cluster, opened: Callable[..., Sender]
) -> None:
    sender = opened(**{"transactional.id": "t"})
    sender.producer.init_transactions(WAIT_S)
    sender.producer.begin_transaction()
    assert sender.send(PARTITION, numbered(3)) == (3, None)
    sender.producer.commit_transaction(WAIT_S)
    assert written(cluster, 3) == numbered(3)
