"""Send dead letters back to where they failed, each source record once.

The record goes back with its own key, value and headers. A letter of a reactor goes to that
reactor's first retry topic, so that nobody else sees its event twice. A header counts how often;
a record that came back more than `REDRIVES_MAX` times stays where it is. Letters go in chunks:
send, wait until they are in the log, then commit. A crash between the two repeats one chunk, which
readers of topics with event ids see as duplicates. Run one redrive of a topic at a time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum

from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.dlq.letters import Letter, Source
from infra.dlq.progress import Progress, TooScattered
from infra.dlq.reading import bounds, letters
from streams.runtime import kafka
from streams.runtime.settings import Kafka
from streams.runtime.topic import Topic, retry_topic

_Errand = tuple[Source | None, str, int]
"""Source, reactor and number of redrives: one such is sent once. A source of ordinary letters has
one number for ever; a reactor's task keeps its source when it comes back.
"""

REDRIVES_MAX = 3
CHUNK_ROWS = 100
FLUSH_TIMEOUT_S = 30.0
TIMEOUT_S = 10.0


class Fate(StrEnum):
    """What became of a letter."""

    SENT = "sent"
    REPEATED = "repeated"
    """Another letter of the same source was sent: done without sending."""
    OTHER_REASON = "other reason"
    LOOPING = "came back too often"
    NO_SOURCE = "does not say where it came from"
    OTHER_TOPIC = "came from another topic"


class NotSent(Exception):
    """Kafka did not confirm a chunk; those letters are still to do."""


@dataclass(frozen=True)
class Wish:
    """What to redrive. `reason` is a text within the letter's reason; `rate` is letters a second
    (0: as fast as it goes); `limit` is the most letters to send.
    """

    topic: Topic
    reason: str = ""
    limit: int | None = None
    rate: float = 0.0
    force: bool = False
    dry_run: bool = False


@dataclass
class Redrive:
    """One run. Clock and sleep are given by tests."""

    settings: Kafka
    wish: Wish
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    fates: Counter[Fate] = field(default_factory=Counter)
    stopped: str = ""
    """Why it ended early, if it did."""

    def run(self) -> Counter[Fate]:
        """Redrive; returns letters by fate. Raises `UnknownTopic`, `KafkaException`, `NotSent`."""
        topic = self.wish.topic.dead_letters
        spans = bounds(self.settings, topic)
        group = kafka.consumer(self.settings, group_of(topic))
        try:
            self._progress = stored(group, topic, spans)
            self._seen = set(self._done(spans))
            self._producer = kafka.producer(self.settings)
            self._began = self.clock()
            todo = {p: (self._progress[p].low, end) for p, (_, end) in spans.items()}
            with closing(letters(self.settings, topic, todo)) as found:
                for chunk in self._chunks(found):
                    if not self._send(chunk, group):
                        break
        finally:
            group.close()
        return self.fates

    def _done(self, spans: dict[int, tuple[int, int]]) -> Iterator[_Errand]:
        """What earlier runs are done with."""
        reach = {
            p: (
                start,
                max([self._progress[p].low, *(stop for _, stop in self._progress[p].beyond)]),
            )
            for p, (start, _) in spans.items()
        }
        for letter in letters(self.settings, self.wish.topic.dead_letters, reach):
            if letter.source is not None and letter.offset in self._progress[letter.partition]:
                yield self._errand(letter)

    def _chunks(self, found: Iterator[Letter]) -> Iterator[list[tuple[Letter, Fate]]]:
        """Letters to send, and repeats to tick off, in chunks; the rest is counted and left."""
        chunk: list[tuple[Letter, Fate]] = []
        sent = 0
        for letter in found:
            if letter.offset in self._progress[letter.partition]:
                continue
            fate = self._fate(letter)
            if fate is Fate.SENT:
                if self.wish.limit is not None and sent >= self.wish.limit:
                    break
                sent += 1
                self._seen.add(self._errand(letter))
            if fate in (Fate.SENT, Fate.REPEATED):
                chunk.append((letter, fate))
            else:
                self.fates[fate] += 1
            if len(chunk) >= CHUNK_ROWS:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _fate(self, letter: Letter) -> Fate:
        if letter.source is None:
            return Fate.NO_SOURCE
        if letter.source.topic != self.wish.topic.name:
            return Fate.OTHER_TOPIC
        if self.wish.reason not in letter.reason:
            return Fate.OTHER_REASON
        if self._errand(letter) in self._seen:
            return Fate.REPEATED
        if letter.redrives >= REDRIVES_MAX and not self.wish.force:
            return Fate.LOOPING
        return Fate.SENT

    def _errand(self, letter: Letter) -> _Errand:
        return letter.source, self._reactor(letter), letter.redrives

    def _reactor(self, letter: Letter) -> str:
        """The reactor that set the letter aside; "" where it was none."""
        return letter.agent if letter.agent in self.wish.topic.retries else ""

    def _send(self, chunk: list[tuple[Letter, Fate]], group: Consumer) -> bool:
        """Send a chunk and commit it; False when progress could not be remembered after it."""
        if self.wish.dry_run:
            self.fates.update(fate for _, fate in chunk)
            return True
        after = dict(self._progress)
        for letter, _ in chunk:
            after[letter.partition] = after[letter.partition].with_done(letter.offset)
        try:
            places = [self._place(p, after[p]) for p in {letter.partition for letter, _ in chunk}]
        except TooScattered as error:
            self.stopped = f"{error}: redrive the letters before them first (without --reason)"
            return False
        self._produce([letter for letter, fate in chunk if fate is Fate.SENT])
        group.commit(offsets=places, asynchronous=False)
        self._progress = after
        self.fates.update(fate for _, fate in chunk)
        return True

    def _place(self, partition: int, progress: Progress) -> TopicPartition:
        topic = self.wish.topic.dead_letters
        return TopicPartition(topic, partition, progress.low, progress.metadata())

    def _produce(self, chunk: list[Letter]) -> None:
        failed: list[str] = []

        def report(error: object, _: object) -> None:
            if error is not None:
                failed.append(str(error))

        for number, letter in enumerate(chunk):
            if self.wish.rate:
                due_s = self._began + (self.fates[Fate.SENT] + number) / self.wish.rate
                self.sleep(max(0.0, due_s - self.clock()))
            assert letter.source is not None
            topic, headers, partition = self.wish.topic.name, letter.original_headers(), None
            if reactor := self._reactor(letter):
                topic = retry_topic(reactor, self.wish.topic.retries[reactor][0])
                headers, partition = letter.retry_headers(), letter.source.partition
            elif letter.key is None:  # a key finds its partition by itself
                partition = letter.source.partition
            self._producer.produce(
                topic,
                key=letter.key,
                value=letter.value,
                headers=headers,
                on_delivery=report,
                **({} if partition is None else {"partition": partition}),
            )
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if failed or left:
            raise NotSent(f"{len(failed) + left} letters were not confirmed: {failed[:1]}")


def group_of(dead_letters: str) -> str:
    """The consumer group whose commits are the progress."""
    return f"headrace-redrive-{dead_letters}"


def stored(group: Consumer, topic: str, spans: dict[int, tuple[int, int]]) -> dict[int, Progress]:
    """The progress of every partition; raises `KafkaException`."""
    asked = [TopicPartition(topic, partition) for partition in spans]
    found: dict[int, Progress] = {}
    for place in group.committed(asked, timeout=TIMEOUT_S):
        if place.error is not None:
            raise KafkaException(place.error)
        start, _ = spans[place.partition]
        nothing = place.offset < 0
        known = Progress(start) if nothing else Progress.read(place.offset, place.metadata)
        found[place.partition] = known.since(start)
    return found
