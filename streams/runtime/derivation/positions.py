"""The position of a derivation: the group's committed offset, with the position as its metadata.

So offset and reader-rule state of the source are stored by the log itself, in one record (B4). The
broker takes 4,096 bytes of metadata by default; a derivation whose position might not fit is
refused at start, before anything is sent.
"""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streams.runtime import kafka
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.wire import HEARTBEAT
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.bounds import LogMismatch, check_partitions
from streams.runtime.outcome import Fate
from streams.runtime.position import FilterState, Position, SourceState

METADATA_BYTES_MAX = 4_096
"""The broker's `offset.metadata.max.bytes`, unless it is set otherwise."""
TIMEOUT_S = 10.0
_NUMBER_MAX = 10**15
"""No offset and no time in milliseconds is longer than this in digits, for 30,000 years."""


def to_metadata(position: Position, version: int) -> str:
    """A position as the metadata of an offset, with the derivation's version before it. The state
    at low is left out: a derivation has nothing open, so it is that at next.
    """
    return f"{version} {replace(position, filter_low=None).encode().decode()}"


def from_metadata(text: str) -> tuple[Position, int]:
    """The inverse of `to_metadata`; raises `ValueError` for other text."""
    version, _, encoded = text.partition(" ")
    position = Position.decode(encoded)
    return replace(position, filter_low=position.filter_next), int(version)


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
        """Raise `LogMismatch` unless the target is as declared and positions fit, and
        `UnknownTopic` or `KafkaException`. Asks once; the source is checked by the lane.
        """
        if self._checked:
            return
        derivation = self._derivation
        check_partitions(derivation.name, derivation.target, self._bounds(derivation.target.name))
        sources = sum(self._bounds(name).partitions for name in derivation.source.derived_from)
        size = len(to_metadata(longest(sources), derivation.version))
        if size > METADATA_BYTES_MAX:
            raise LogMismatch(
                f"{derivation.name}: its position may need {size} bytes, the broker stores "
                f"{METADATA_BYTES_MAX} with an offset; derive from a topic with fewer sources"
            )
        self._checked = True

    def load(self, partition: int) -> Position | None:
        """The committed position. Raises `LogMismatch` where nothing says what was sent."""
        name, topic = self._derivation.name, self._derivation.source.name
        places = [TopicPartition(topic, n) for n in range(self._derivation.source.partitions)]
        asked = ConsumerGroupTopicPartitions(name, places)
        answer = self._admin.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)
        found = {one.partition: one for one in answer[name].result(TIMEOUT_S).topic_partitions}
        place = found[partition]
        if place.error is not None:
            raise KafkaException(place.error)
        if place.offset < 0:
            if all(one.offset < 0 for one in found.values()):
                self._check_new(partition)
            return None
        where = f"{name} on {topic}/{partition}"
        try:
            position, version = from_metadata(place.metadata or "")
        except ValueError as error:
            raise LogMismatch(
                f"{where}: the group's offset {place.offset} was set by something else. Delete the "
                "group's offsets; it then derives from the start, and readers drop what they have"
            ) from error
        if version != self._derivation.version:
            raise LogMismatch(
                f"{where}: {self._derivation.target.name} was filled by version {version}, this is "
                f"{self._derivation.version}: what a row leads to is frozen for the life of a "
                "topic (rule B6). Derive into a new topic, under a new name"
            )
        return position

    def _check_new(self, partition: int) -> None:
        """Without any position it is new, or its group's offsets have expired (seven days after it
        last ran). In the latter case the log must be whole: it is derived again, and readers drop
        what they have.
        """
        derivation = self._derivation
        source = self._bounds(derivation.source.name, partition)
        if source.start == 0:
            return
        for target in range(derivation.target.partitions):
            if self._bounds(derivation.target.name, target).end > 0:
                raise LogMismatch(
                    f"{derivation.name} on {derivation.source.name}/{partition}: has no position, "
                    f"retention has deleted the log up to {source.start}, and "
                    f"{derivation.target.name} has records: some between may be missing. Derive "
                    "into a new topic"
                )

    def _bounds(self, topic: str, partition: int = 0) -> LogBounds:
        return kafka.log_bounds(self._admin, topic, partition, TIMEOUT_S)
