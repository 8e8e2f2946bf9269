"""The row path: strict walk, then fastavro with the reader's schema. Same frames, slower."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import fastavro
import polars as pl
from polars.exceptions import PanicException

from streams.runtime.avro.container import HEADER_BYTES
from streams.runtime.avro.convert import bad_rows, cast, check_dtype, from_values
from streams.runtime.avro.plan import Plan
from streams.runtime.avro.schema import without_logical
from streams.runtime.avro.strict import Malformed, check


class RowReader:
    """Reads single values of one writer schema."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # fastavro resolves, so nothing of the writer's types is left to look at.
        self._columns = [replace(c, writer=None) for c in plan.columns]
        for c in self._columns:
            check_dtype(c, plan.record.fullname)

    @cached_property
    def _schemas(self) -> tuple[Any, Any]:
        written = without_logical(self._plan.writer.json)
        read = without_logical(self._plan.record.schema)
        return fastavro.parse_schema(written), fastavro.parse_schema(read)

    def read(self, values: Sequence[bytes]) -> tuple[pl.DataFrame, list[int], dict[int, str]]:
        """The good rows, their indexes in `values`, and what is wrong with each other one."""
        kept: list[int] = []
        records: list[dict[str, Any]] = []
        dead: dict[int, str] = {}
        for i, value in enumerate(values):
            try:
                records.append(self._record(value))
                kept.append(i)
            except Malformed as error:
                dead[i] = str(error)
        try:
            return self._frame(records), kept, dead
        except (Exception, PanicException):
            return self._one_by_one(records, kept, dead)

    def _one_by_one(
        self, records: list[dict[str, Any]], kept: list[int], dead: dict[int, str]
    ) -> tuple[pl.DataFrame, list[int], dict[int, str]]:
        frames = [self._frame([])]
        good: list[int] = []
        for i, record in zip(kept, records, strict=True):
            try:
                frames.append(self._frame([record]))
                good.append(i)
            except (Exception, PanicException) as error:
                dead[i] = _reason(error)
        return pl.concat(frames), good, dead

    def _record(self, value: bytes) -> dict[str, Any]:
        check(self._plan.writer.type, value, HEADER_BYTES)
        source = io.BytesIO(value)
        source.seek(HEADER_BYTES)
        try:
            record: dict[str, Any] = fastavro.schemaless_reader(
                source, *self._schemas, return_record_name=True, return_record_name_override=True
            )
        except Exception as error:
            raise Malformed(_reason(error)) from error
        return record

    def _frame(self, records: Sequence[dict[str, Any]]) -> pl.DataFrame:
        columns = []
        for c in self._columns:
            raw = from_values([record[c.name] for record in records], c)
            if bad_rows(raw, c) is not None:
                raise Malformed(f"field {c.name}: out of range")
            columns.append(cast(raw, c))
        return pl.DataFrame(columns)


def _reason(error: BaseException) -> str:
    """Short, and never with the record's content unless it is the reason we made."""
    if isinstance(error, Malformed):
        return str(error)
    return f"does not resolve to the reader's schema ({type(error).__name__})"
