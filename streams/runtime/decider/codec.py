"""Typed rows of a topic to Confluent's wire format and back.

Reading goes through the columnar decoder, so that a record means the same to a decider and to
every other reader; a few records that leave nothing to convert are read one by one, which is many
times as fast. Writing is with the reader's schema (`encode`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streams.runtime.avro import ROW, Decoder, SchemaSource
from streams.runtime.avro.typed import typed
from streams.runtime.decider.encode import writer
from streams.runtime.decider.records import CONTROL_RECORDS
from streams.runtime.topic import Topic

FEW = 64
"""So many records at most are read one by one."""


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
        self._decoder = Decoder(topic, schemas)
        self._rows = {one.fullname: one.row for one in topic.records}
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
        if len(values) > FEW:
            return self._in_columns(values)
        found: list[Any] = [self._single(value) for value in values]
        rest = [at for at, one in enumerate(found) if one is None]
        for at, one in zip(rest, self._in_columns([values[at] for at in rest]), strict=True):
            found[at] = one
        return found

    def _single(self, value: bytes | None) -> tuple[str, Any] | None:
        found = self._decoder.single(value)
        return None if found is None else (found[0], self._rows[found[0]](**found[1]))

    def _in_columns(self, values: Sequence[bytes | None]) -> list[tuple[str, Any] | Unreadable]:
        if not values:
            return []
        decoded = self._decoder.decode(values)
        found: list[Any] = [None] * len(values)
        for name, frame in decoded.frames.items():
            rows = typed(self._rows[name], frame.drop(ROW))
            if frame.height == len(values):
                return [(name, row) for row in rows]
            for at, row in zip(frame[ROW].to_list(), rows, strict=True):
                found[at] = (name, row)
        for dead in decoded.dead:
            found[dead.row] = Unreadable(dead.reason)
        for at in decoded.tombstones:
            found[at] = Unreadable("a tombstone")
        return found
