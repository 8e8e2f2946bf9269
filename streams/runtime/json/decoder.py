"""JSON values of a foreign topic to one frame; bad values apart, with a reason each.

The promise is that of `streams.runtime.avro.decoder`: every value is in a frame, in `dead` or in
`tombstones`, exactly once; a good record's row does not depend on its neighbours, on the size of
the batch or on the path it took. It is kept by the simplest means: every value is parsed by
itself, whole, into a typed struct (msgspec, strict), so that no value can reach into another one.
Only what comes after, structs to columns, is done in bulk. Parsing many values as one text is
*slower*: per record of 240 bytes 0.18-0.27 µs so, 0.43 joined as an array, 0.50 with
Polars' `read_ndjson` (which takes numbers for strings besides), 0.63 with one regular expression.

Limits. One record type a topic, of plain fields (see `fields`). The names are the schema's. A
field that the schema has not, or that is not asked for, is skipped: that it is JSON is checked,
what it holds is not. Of a name that is there twice the last one counts. A record nested deeper
than the interpreter's stack is dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from streams.runtime.avro.decoder import Dead, Decoded, check_fates
from streams.runtime.avro.schema import parse
from streams.runtime.avro.span import ROW
from streams.runtime.json.fields import JsonField
from streams.runtime.topic import Topic

_NOT_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError)


class JsonDecoder:
    """Decodes values of one topic. `columns` picks fields by record full name (None: all).

    `TypeError` for a topic with several record types or a field that JSON has no value for;
    `KeyError` for a column that the record has not. Threads: stateless after construction.
    """

    def __init__(self, topic: Topic, columns: Mapping[str, Sequence[str]] | None = None) -> None:
        if len(topic.records) != 1:
            raise TypeError(f"topic {topic.name}: JSON does not tell several record types apart")
        (record,) = topic.records
        self._record = record.fullname
        wanted = (columns or {}).get(record.fullname)
        if unknown := set(wanted or ()) - set(record.columns):
            raise KeyError(f"{record.fullname} has no field {', '.join(sorted(unknown))}")
        self._fields = [
            JsonField(field, record.dtypes[field.name])
            for field in parse(record.schema).fields
            if wanted is None or field.name in wanted
        ]
        struct = msgspec.defstruct(
            record.name, [one.definition for one in self._fields], gc=False, kw_only=True
        )
        self._parse = msgspec.json.Decoder(struct).decode

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Frames, dead rows and tombstones of `values`."""
        dead: dict[int, str] = {}
        rows, parsed = self._parsed(values, dead)
        columns: list[pl.Series] = []
        bad: pl.Series | None = None
        for field in self._fields:
            column, wrong = field.column([getattr(one, field.name) for one in parsed])
            columns.append(column)
            if wrong is not None:
                dead.update(dict.fromkeys(rows[wrong.to_numpy()].tolist(), _wrong(field)))
                bad = wrong if bad is None else bad | wrong
        frame = pl.DataFrame([pl.Series(ROW, rows), *columns])
        if bad is not None:
            frame = frame.filter(~bad)
        decoded = Decoded(
            {self._record: frame} if frame.height else {},
            [Dead(row, reason) for row, reason in sorted(dead.items())],
            [row for row, value in enumerate(values) if value is None],
        )
        check_fates(decoded, len(values))
        return decoded

    def _parsed(
        self, values: Sequence[bytes | None], dead: dict[int, str]
    ) -> tuple[np.ndarray, list[Any]]:
        """The good values as structs, and where they were; notes the others as dead."""
        try:
            every = list(map(self._parse, values))  # type: ignore[arg-type]
        except (*_NOT_JSON, TypeError):  # TypeError: a tombstone among them
            pass
        else:
            return np.arange(len(every), dtype=np.int64), every
        rows: list[int] = []
        parsed: list[Any] = []
        for row, value in enumerate(values):
            if value is None:
                continue
            try:
                parsed.append(self._parse(value))
                rows.append(row)
            except _NOT_JSON as error:
                dead[row] = _reason(error)
        return np.array(rows, np.int64), parsed


def _wrong(field: JsonField) -> str:
    return f"field {field.name}: a string that is no integer of its range"


def _reason(error: BaseException) -> str:
    """What is wrong and where; msgspec never quotes the value."""
    return "nested too deeply" if isinstance(error, RecursionError) else f"JSON: {error}"
