"""Examples of events: files in Avro's JSON encoding, read strictly.

In that encoding a union's value names its branch (`{"string": "imp-01"}`, or plain `null`) and
a timestamp is a number of milliseconds. Source: Avro 1.12, "JSON Encoding".
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro

from schemas.generate.declaration import SchemaFile


class ExampleError(ValueError):
    """An example that is not exactly what its schema says."""


def read_example(file: SchemaFile, path: Path) -> dict[str, Any]:
    """The example as a record that fastavro writes; timestamps are milliseconds.

    Every field must be there, defaults too, and no other: an example shows all of an event.
    Raises `ExampleError`.
    """
    text = path.read_text(encoding="utf-8")
    # Without logical types: timestamps stay numbers, as in the rows of events.py.
    schema = plain(file.schema)
    try:
        given = json.loads(text)
        record: dict[str, Any] = next(fastavro.json_reader(io.StringIO(json.dumps(given)), schema))
        fastavro.schemaless_writer(io.BytesIO(), schema, record, strict=True)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, OverflowError) as error:
        raise ExampleError(f"not a {file.name}: {error!r}") from error
    back = io.StringIO()
    fastavro.json_writer(back, schema, [record])
    if json.loads(back.getvalue()) != given:
        raise ExampleError(f"reads as {back.getvalue()}, so fields are missing or unknown")
    return record


def plain(schema: Any) -> Any:
    """A schema without its logical types."""
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
    if isinstance(schema, list):
        return [plain(item) for item in schema]
    return schema
