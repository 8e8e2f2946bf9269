"""What fastavro makes of a value when nothing is forgiven: the judge of the decoder's tests.

It shares no code with the decoder. Strict means: fastavro reads it, all bytes are used, and
fastavro writes the same bytes again, or the bytes differ only in how integers are padded
and arrays are cut into blocks (`loose`).
"""

import io
from typing import Any

import fastavro

from streams.runtime.avro.schema import without_logical


def strict(schema: Any, value: bytes) -> dict[str, Any] | None:
    """The record, if its bytes are the canonical encoding of it; else None."""
    record = loose(schema, value)
    if record is None:
        return None
    sink = io.BytesIO()
    try:
        fastavro.schemaless_writer(sink, _parsed(schema), record)
    except Exception:
        return None
    return record if sink.getvalue() == value[5:] else None


def loose(schema: Any, value: bytes) -> dict[str, Any] | None:
    """The record as fastavro reads it, if it uses all bytes; else None."""
    if value[:5] != b"\x00\x00\x00\x00\x01":
        return None
    source = io.BytesIO(value[5:])
    try:
        record: dict[str, Any] = fastavro.schemaless_reader(source, _parsed(schema))
    except Exception:
        return None
    return None if source.read(1) else record


def _parsed(schema: Any) -> Any:
    return fastavro.parse_schema(without_logical(schema))
