"""The position of a derivation: the group's committed offset, with the position as its metadata.

So offset and reader-rule state of the source are stored by the log itself, in one record (B4). The
broker takes 4,096 bytes of metadata by default; a derivation whose position might not fit is
refused at start, before anything is sent.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streams.runtime import kafka
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.wire import HEARTBEAT
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.outcome import Fate
from streams.runtime.position import FilterState, Position, SourceState

METADATA_BYTES_MAX = 4_096
"""The broker's `offset.metadata.max.bytes`, unless it is set otherwise."""
TIMEOUT_S = 10.0
_NUMBER_MAX = 10**15
"""No offset and no time in milliseconds is longer than this in digits, for 30,000 years."""


def to_metadata(position: Position) -> str:
    """A position as the metadata of an offset. The state at low is left out: a derivation has
    nothing open, so it is that at next.
    """
    return replace(position, filter_low=None).encode().decode()


def from_metadata(text: str) -> Position:
    """The inverse of `to_metadata`; raises `msgspec.ValidationError` or `DecodeError`."""
    position = Position.decode(text)
    return replace(position, filter_low=position.filter_next)


def longest(sources: int) -> Position:
    """The longest position of a derivation whose source has so many source partitions itself."""
    state = FilterState(
        _NUMBER_MAX,
        "0" * 32,
        _NUMBER_MAX,
        _NUMBER_MAX,
        {
            f"{'0' * 16}/{n:05d}": SourceState(_NUMBER_MAX, HEARTBEAT, -_NUMBER_MAX, 10**4)
            for n in range(sources)
        },
    )
    counts = {str(fate): _NUMBER_MAX for fate in Fate}
    return Position(
        "0" * 22, _NUMBER_MAX, _NUMBER_MAX, -_NUMBER_MAX, -_NUMBER_MAX, counts, {}, state, None
    )


class GroupPositions:
    """Positions of one derivation, from the group coordinator."""

    def __init__(self, derivation: Derivation, admin: AdminClient) -> None:
        self._derivation = derivation
        self._admin = admin
        self._checked = False

    def check(self) -> None:
        """Raise `LogMismatch` unless topics and broker are as the derivation needs them, and
        `UnknownTopic` or `KafkaException`. Asks once.
        """
        if self._checked:
            return
        derivation = self._derivation
        for topic in (derivation.source, derivation.target):
            found = self._partitions(topic.name)
            if found != topic.partitions:
                raise LogMismatch(
                    f"{derivation.name}: {topic.name} has {found} partitions, declared are "
                    f"{topic.partitions}: keys would move (rule B6). Declare a new topic"
                )
        sources = sum(self._partitions(name) for name in derivation.source.derived_from)
        size = len(to_metadata(longest(sources)))
        if size > METADATA_BYTES_MAX:
            raise LogMismatch(
                f"{derivation.name}: its position may need {size} bytes, the broker stores "
                f"{METADATA_BYTES_MAX} with an offset; derive from a topic with fewer sources"
            )
        self._checked = True

    def load(self, partition: int) -> Position | None:
        """The committed position. Raises `LogMismatch` where nothing says what was sent."""
        name, topic = self._derivation.name, self._derivation.source.name
        asked = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, partition)])
        answer = self._admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)
        (place,) = answer[name].result(TIMEOUT_S).topic_partitions
        if place.error is not None:
            raise KafkaException(place.error)
        if place.offset < 0:
            self._check_new(partition)
            return None
        try:
            return from_metadata(place.metadata or "")
        except msgspec.MsgspecError as error:
            raise LogMismatch(
                f"{name} on {topic}/{partition}: the group's offset {place.offset} was set by "
                "something else. Delete the group's offsets; it then derives from the start, and "
                "readers drop what they have"
            ) from error

    def _check_new(self, partition: int) -> None:
        """Without a position it begins at the start of the log, which must then hold everything
        that was not derived yet.
        """
        derivation = self._derivation
        source = kafka.log_bounds(self._admin, derivation.source.name, partition, TIMEOUT_S)
        if source.start == 0:
            return
        for target in range(derivation.target.partitions):
            bounds = kafka.log_bounds(self._admin, derivation.target.name, target, TIMEOUT_S)
            if bounds.end > 0:
                raise LogMismatch(
                    f"{derivation.name} on {derivation.source.name}/{partition}: has no position, "
                    f"retention has deleted the log up to {source.start}, and "
                    f"{derivation.target.name} has records: some between may be missing. Derive "
                    "into a new topic"
                )

    def _partitions(self, topic: str) -> int:
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_S)
        try:
            return len(asked[topic].result(TIMEOUT_S).partitions)
        except KafkaException:
            kafka.topic_id(self._admin, topic, TIMEOUT_S)  # says so where there is no such topic
            raise
