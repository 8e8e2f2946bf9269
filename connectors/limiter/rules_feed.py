"""The rules in force, in every process that needs them: a fold of `limiter.rules` in memory.

One thread reads the compacted topic from its start and goes on reading; asking is a dictionary.
While the log is away the rules stay as they were last read. A record that cannot be read is
skipped and counted: the rule stays as it was, since no rule is worse than an old one.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from schemas.limiter.events import RULE_REMOVED, RULES
from schemas.limiter.rules import BadRule, Request, Rule
from streams.runtime import kafka
from streams.runtime.avro import Decoder, SchemaSource
from streams.runtime.settings import Kafka

POLL_S = 0.1
RETRY_S = 1.0
CONSUME_ROWS = 500
START_TIMEOUT_S = 10.0

log = structlog.get_logger()


class Rulebook:
    """Rules by id; `fold` changes it, everybody else asks. Safe between threads: the mapping is
    replaced, never changed.
    """

    def __init__(self) -> None:
        self.rules: Mapping[str, Rule] = {}
        self.unreadable = 0
        self._next: dict[tuple[str, int], int] = {}

    def fold(self, record: str, fields: Mapping[str, Any]) -> None:
        """Take in one record of `limiter.rules`."""
        if record == RULE_REMOVED.fullname:
            self.rules = {k: v for k, v in self.rules.items() if k != fields["rule_id"]}
            return
        try:
            rule = Rule.of(fields)
        except BadRule as error:
            self.skip(str(error))
        else:
            self.rules = {**self.rules, rule.rule_id: rule}

    def skip(self, reason: str) -> None:
        """Count what cannot be read."""
        self.unreadable += 1
        log.warning("a rule cannot be read", reason=reason)

    def reached(self, topic: str, partition: int, next_offset: int) -> None:
        """Everything before `next_offset` is folded."""
        self._next[topic, partition] = next_offset

    def next(self, topic: str, partition: int) -> int:
        """The first offset not folded yet."""
        return self._next.get((topic, partition), 0)

    async def applied(self) -> dict[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        return dict(self._next)

    def about(self, request: Request) -> list[Rule]:
        """The rules for a request, by id."""
        if not self.rules:
            return []
        found = [rule for rule in self.rules.values() if rule.counts(request)]
        return sorted(found, key=lambda rule: rule.rule_id)


class RulesFeed:
    """Keeps a `Rulebook` as new as the log. An async context manager: entering waits, bounded,
    until all rules that were there are read, and goes on without them while the log is away.
    """

    def __init__(
        self, settings: Kafka, schemas: SchemaSource, book: Rulebook | None = None
    ) -> None:
        self.book = book or Rulebook()
        self._settings = settings
        self._decoder = Decoder(RULES, schemas)
        self._stopping = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="limiter-rules", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        if not await asyncio.to_thread(self._caught_up.wait, START_TIMEOUT_S):
            log.warning("the rules of the limiter are not read yet")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except Exception as error:  # whatever it is, the rules last read stay in force
                log.warning("rules are not read", error=str(error), retry_s=RETRY_S)
                self._stopping.wait(RETRY_S)

    def _follow(self) -> None:
        consumer = kafka.consumer(self._settings, f"limiter-rules-{uuid.uuid4().hex}")
        try:
            places = [
                TopicPartition(RULES.name, partition, OFFSET_BEGINNING)
                for partition in range(RULES.partitions)
            ]
            ends = {at.partition: _end(consumer, at) for at in places}
            consumer.assign(places)
            while not self._stopping.is_set():
                if all(self.book.next(RULES.name, at) >= end for at, end in ends.items()):
                    self._caught_up.set()
                self._take(consumer.consume(CONSUME_ROWS, timeout=POLL_S))
        finally:
            consumer.close()

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
        decoded = self._decoder.decode([message.value() for message in messages])
        rows = [
            (row["_row"], name, row)
            for name, frame in decoded.frames.items()
            for row in frame.to_dicts()
        ]
        for _, name, fields in sorted(rows, key=lambda row: row[0]):
            self.book.fold(name, fields)
        for dead in decoded.dead:
            self.book.skip(dead.reason)
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.book.reached(RULES.name, partition, offset + 1)


def _end(consumer: Consumer, at: TopicPartition) -> int:
    """Where the log ends; 0 where it holds nothing."""
    low, high = consumer.get_watermark_offsets(at, timeout=START_TIMEOUT_S)
    return int(high) if high > low else 0
