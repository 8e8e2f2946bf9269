"""Record values of a topic to one frame per record type; bad records apart, with a reason each.

The promise: every value is in a frame, in `dead` or in `tombstones`, exactly once; a good record's
row does not depend on its neighbours, on the size of the batch or on the path it took.

The values of one schema id are read as one block (`span`); in the usual case that is all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import polars as pl

from streams.runtime.avro.container import HEADER_BYTES, Unreadable
from streams.runtime.avro.plan import Plan, Unresolvable, plan
from streams.runtime.avro.registry import SchemaSource, UnknownSchema, WriterSchema
from streams.runtime.avro.schema import parse
from streams.runtime.avro.single import SingleReader
from streams.runtime.avro.span import ROW, Result, SpanReader
from streams.runtime.native.columns import Values
from streams.runtime.topic import RecordType, Topic

_SAMPLES = 16


class RowsMissing(RuntimeError):
    """A value has no fate or two: a fault of this module, never of the data."""


@dataclass(frozen=True)
class Dead:
    """A value that is no record of the topic: its index and why, in a few words."""

    row: int
    reason: str


@dataclass(frozen=True)
class Decoded:
    """`frames` by full name of the record, each with `_row` (Int64, strictly increasing)."""

    frames: Mapping[str, pl.DataFrame]
    dead: Sequence[Dead] = ()
    tombstones: Sequence[int] = ()


class Decoder:
    """Decodes values of one topic. `columns` picks fields by record full name (None: all).

    Fields that are not asked for are skipped: their framing is checked, their content is not.

    Threads: one Decoder may be used by many threads at once. Its only state are tables of plans,
    which only grow and whose entries are equal whoever makes them. `read_avro` runs without
    the GIL; the row path holds it.
    """

    def __init__(
        self,
        topic: Topic,
        schemas: SchemaSource,
        columns: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._topic = topic
        self._schemas = schemas
        self._columns = columns or {}
        self._readers: dict[int, SpanReader | str] = {}
        self._singles: dict[SpanReader, SingleReader | None] = {}
        for name, fields in self._columns.items():
            unknown = set(fields) - set(topic.record(name).columns)
            if unknown:
                raise KeyError(f"{name} has no field {', '.join(sorted(unknown))}")

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Frames, dead rows and tombstones of `values`, in Confluent wire format.

        Raises `RegistryUnavailable` (nothing is decided then; call again).
        """
        count = len(values)
        result = Result()
        tombstones: list[int] = []
        if isinstance(values, Values):
            values = [] if self._plain(values, result) else list(values)
        if not self._uniform(values, result):
            groups = _by_header(values, tombstones, result.dead)
            for header, rows in groups.items():
                self._group(header, rows, values, result)
        decoded = Decoded(
            result.frames(),
            [Dead(row, reason) for row, reason in sorted(result.dead.items())],
            tombstones,
        )
        check_fates(decoded, count)
        return decoded

    def single(self, value: bytes | None) -> tuple[str, dict[str, Any]] | None:
        """Full name and fields of one value; None where only `decode` can tell what it is.

        A hundred times as fast as `decode` of one value. Raises `RegistryUnavailable`.
        """
        if not value:
            return None
        reader = self._single(value[:HEADER_BYTES])
        fields = None if reader is None else reader.read(value)
        return None if reader is None or fields is None else (reader.name, fields)

    def columnar(self, writer: WriterSchema) -> bool:
        """Whether records of that writer schema are read as columns and not row by row.

        `Unresolvable` where the topic does not carry the record or could read none of them.
        """
        return self._plan(writer).container is not None

    def _plain(self, values: Values, result: Result) -> bool:
        """The fastest path: the column reader finds all values plainly good, with one schema.
        False: nothing was decided.
        """
        header = values[0] if len(values) else None
        header = header and header[:HEADER_BYTES]
        if not header or not _is_header(header):
            return False
        reader = self._reader(header)
        frame = None if isinstance(reader, str) else reader.plain(values)
        if frame is None or isinstance(reader, str):
            return False
        result.add(reader.plan.record.fullname, np.arange(len(values)), frame)
        return True

    def _uniform(self, values: Sequence[bytes | None], result: Result) -> bool:
        """The fast path: all values have one schema and are good. False: nothing was decided."""
        if not values:
            return True
        sample = [*values[:: max(1, len(values) // _SAMPLES)], values[-1]]
        headers = {value and value[:HEADER_BYTES] for value in sample}
        header = headers.pop()
        if headers or not header or not _is_header(header):
            return False
        reader = self._reader(header)
        if isinstance(reader, str) or reader.plan.container is None:
            return False
        try:
            frame, bad = reader.columns(cast("Sequence[bytes]", values))
        except (Unreadable, TypeError):  # TypeError: a tombstone among the values
            return False
        if bad is not None:
            return False
        result.add(reader.plan.record.fullname, np.arange(len(values)), frame)
        return True

    def _group(
        self, header: bytes, rows: list[int], values: Sequence[bytes | None], result: Result
    ) -> None:
        reader = self._reader(header)
        if isinstance(reader, str):
            result.dead.update(dict.fromkeys(rows, reader))
        else:
            reader.read([value for i in rows if (value := values[i]) is not None], rows, result)

    def _reader(self, header: bytes) -> SpanReader | str:
        """The reader of a schema, or why its records are dead."""
        schema_id = int.from_bytes(header[1:], "big")
        if found := self._readers.get(schema_id):
            return found
        try:
            writer = self._schemas.writer_schema(schema_id)
        except UnknownSchema as error:
            return str(error)
        try:
            made: SpanReader | str = SpanReader(self._plan(writer))
        except Unresolvable as error:
            made = str(error)
        return self._readers.setdefault(schema_id, made)

    def _single(self, header: bytes) -> SingleReader | None:
        span = self._reader(header) if _is_header(header) else ""
        if isinstance(span, str):
            return None
        if span not in self._singles:
            self._singles[span] = SingleReader.of(span.plan)
        return self._singles[span]

    def _plan(self, writer: WriterSchema) -> Plan:
        record = self._record(writer)
        return plan(writer, record, self._columns.get(record.fullname))

    def _record(self, writer: WriterSchema) -> RecordType:
        for record in self._topic.records:
            if record.fullname == writer.fullname:
                return record
        for record in self._topic.records:
            if writer.fullname in parse(record.schema).aliases:
                return record
        raise Unresolvable(
            f"record type {writer.fullname} is not declared for topic {self._topic.name}"
        )


def _is_header(header: bytes) -> bool:
    return len(header) == HEADER_BYTES and header[0] == 0


def _by_header(
    values: Sequence[bytes | None], tombstones: list[int], dead: dict[int, str]
) -> dict[bytes, list[int]]:
    """Indexes by header; tombstones and values without a header go where they belong."""
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    for i, value in enumerate(values):
        if value is None:
            tombstones.append(i)
        else:
            groups[value[:HEADER_BYTES]].append(i)
    for header in [header for header in groups if not _is_header(header)]:
        for i in groups.pop(header):
            dead[i] = _bad_header(header)
    return groups


def _bad_header(header: bytes) -> str:
    if not header:
        return "framing: empty value"
    if header[0]:
        return f"framing: magic byte 0x{header[0]:02x}"
    return f"framing: {len(header)} bytes"


def check_fates(decoded: Decoded, count: int) -> None:
    """Raise `RowsMissing` unless each of `count` values has exactly one fate."""
    fates = np.concatenate(
        [
            *(frame[ROW].to_numpy() for frame in decoded.frames.values()),
            np.array([d.row for d in decoded.dead], np.int64),
            np.array(decoded.tombstones, np.int64),
        ]
    )
    seen = np.bincount(fates, minlength=count) if len(fates) else np.zeros(count, np.int64)
    if len(seen) != count or not (seen == 1).all():
        raise RowsMissing(f"{count} values in, {len(fates)} fates out")
