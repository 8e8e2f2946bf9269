"""The journal of some books, read from the log and added up again.

Shares no rules with the product, only Kafka, the registry's schemas and fastavro: every posting's
amount is summed by account, which has to give the balance that the events and the read model say,
and zero by currency.
"""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import fastavro
import httpx
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from streams.runtime.settings import Settings

TOPIC = "payments.events"
TIMEOUT_S = 10.0
_SCHEMA_ID = slice(1, 5)


@dataclass
class Journal:
    """What the log says of some books."""

    balances: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    """Book and account → sum of all amounts."""
    sums: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Book and currency → sum of all amounts; zeros."""
    unbalanced: int = 0
    """Events whose amounts do not add up to zero in every currency."""
    wrong: int = 0
    """Postings whose balance is not the one before and the amount."""
    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Book → the numbers of its events, in log order."""
    events: Counter[str] = field(default_factory=Counter)
    """Events by record."""

    def add(self, record: str, row: dict[str, Any]) -> None:
        """Count one event."""
        book = row["book"]
        self.events[record] += 1
        self.numbers[book].append(row["number"])
        together: Counter[str] = Counter()
        for posting in row.get("postings", ()):
            key = (book, posting["account"])
            self.balances[key] += posting["amount"]
            self.wrong += self.balances[key] != posting["balance"]
            together[posting["currency"]] += posting["amount"]
            self.sums[book, posting["currency"]] += posting["amount"]
        self.unbalanced += any(together.values())

    def gaps(self) -> int:
        """Books whose events are not numbered 1, 2, 3, …"""
        return sum(n != list(range(1, len(n) + 1)) for n in self.numbers.values())


def read(settings: Settings, books: set[str]) -> Journal:
    """Read the log from its start to its end, as it is now."""
    journal = Journal()
    schemas: dict[int, Any] = {}
    with httpx.Client(base_url=settings.registry.url, timeout=TIMEOUT_S) as registry:
        for raw in _values(settings):
            number = int.from_bytes(raw[_SCHEMA_ID])
            if number not in schemas:
                text = registry.get(f"schemas/ids/{number}").raise_for_status().json()["schema"]
                schemas[number] = fastavro.parse_schema(json.loads(text))
            schema = schemas[number]
            row: Any = fastavro.schemaless_reader(io.BytesIO(raw[5:]), schema, None)
            if row.get("book") in books:
                journal.add(schema["name"].rpartition(".")[2], row)
    return journal


def _values(settings: Settings) -> Iterator[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "group.id": "headrace-demo-journal",
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(TOPIC, TIMEOUT_S).topics[TOPIC].partitions
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), TIMEOUT_S)[1]
            for p in partitions
        }
        consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in partitions])
        while any(ends.values()):
            for message in consumer.consume(1_000, 1.0):
                value, at = message.value(), message.offset()
                if value is not None:
                    yield value
                if at is not None and at + 1 >= ends[message.partition()]:
                    ends[message.partition()] = 0
    finally:
        consumer.close()
