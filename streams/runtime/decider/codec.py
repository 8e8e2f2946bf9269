"""Typed rows of a topic to Confluent's wire format and back.

Writing is with the reader's schema (`encode`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streams.runtime.avro import Dead, Decoder, SchemaSource
from streams.runtime.avro.typed import TypedReader
from streams.runtime.decider.encode import writer
from streams.runtime.decider.records import CONTROL_RECORDS
from streams.runtime.topic import Topic


class EncodeFailed(ValueError):
    """A rule returned a row that its record cannot hold, or of another topic."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is none of the topic, and why."""

    reason: str


def with_control_records(topic: Topic) -> Topic:
    """The event topic with the records that the runtime writes to it."""
    known = {record.fullname for record in topic.records}
    missing = tuple(one for one in CONTROL_RECORDS if one.fullname not in known)
    return replace(topic, records=(*topic.records, *missing)) if missing else topic


class Codec:
    """Reads and writes the records of one topic; `schema_ids` has the id of each by full name.

    Raises `ValueError` where an id is missing.
    """

    def __init__(self, topic: Topic, schemas: SchemaSource, schema_ids: Mapping[str, int]) -> None:
        missing = [one.fullname for one in topic.records if one.fullname not in schema_ids]
        if missing:
            raise ValueError(f"topic {topic.name}: no schema id for {missing}")
        self.topic = topic
        self._reader = TypedReader(topic, Decoder(topic, schemas))
        self._writers = {
            one.row: (one.fullname, writer(one, schema_ids[one.fullname])) for one in topic.records
        }

    def encode(self, row: Any) -> tuple[str, bytes]:
        """The full name of the row's record, and its bytes. Raises `EncodeFailed`."""
        found = self._writers.get(type(row))
        if found is None:
            raise EncodeFailed(f"topic {self.topic.name} carries no {type(row).__qualname__}")
        name, write = found
        try:
            return name, write(row)
        except Exception as error:  # fastavro has no class of its own for this
            raise EncodeFailed(f"{name}: {type(error).__name__}: {error}") from error

    def decode(self, values: Sequence[bytes | None]) -> list[tuple[str, Any] | Unreadable]:
        """Full name and typed row of each value. Raises `RegistryUnavailable`."""
        found = self._reader.read(values)
        return [one if isinstance(one, tuple) else _unreadable(one) for one in found]


def _unreadable(one: Dead | None) -> Unreadable:
    return Unreadable("a tombstone" if one is None else one.reason)
