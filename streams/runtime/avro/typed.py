"""Rows of records as the generated dataclasses have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import Any

import polars as pl

from streams.runtime.avro.decoder import Dead, Decoder
from streams.runtime.avro.span import ROW
from streams.runtime.topic import Topic

FEW = 64
"""So many records at most are read one by one."""


def typed(row: type, frame: pl.DataFrame) -> Iterator[Any]:
    """The rows of a frame whose columns are the fields of `row`; times are whole numbers."""
    columns = [
        (one.to_physical() if one.dtype.is_temporal() else one).to_list()
        for one in frame.get_columns()
    ]
    return starmap(row, zip(*columns, strict=True))


class TypedReader:
    """Reads the records of a topic as typed rows, for who acts on each of them.

    All goes through the columnar decoder, so that a record means the same to every reader; a few
    records that leave nothing to convert are read one by one, which is many times as fast.
    """

    def __init__(self, topic: Topic, decoder: Decoder) -> None:
        self._decoder = decoder
        self._rows = {one.fullname: one.row for one in topic.records}

    def read(self, values: Sequence[bytes | None]) -> list[tuple[str, Any] | Dead | None]:
        """Full name and row of each value, why it has none, or None for a tombstone.

        Raises `RegistryUnavailable`.
        """
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

    def _in_columns(self, values: Sequence[bytes | None]) -> list[tuple[str, Any] | Dead | None]:
        found: list[tuple[str, Any] | Dead | None] = [None] * len(values)
        if not values:
            return found
        decoded = self._decoder.decode(values)
        for name, frame in decoded.frames.items():
            rows = typed(self._rows[name], frame.drop(ROW))
            if frame.height == len(values):
                return [(name, row) for row in rows]
            for at, row in zip(frame[ROW].to_list(), rows, strict=True):
                found[at] = (name, row)
        for dead in decoded.dead:
            found[dead.row] = dead
        return found
