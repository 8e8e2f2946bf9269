"""Avro records of a topic to columns, guarded against corrupt and crafted bytes.

Read `decoder` first (the promise), then `container` (how many values become one block that cannot
shift), `plan` and `convert` (writer's schema to reader's columns), `strict` and `rows` (one value
at a time), `registry` (where writer schemas come from).
"""

from streams.runtime.avro.decoder import Dead, Decoded, Decoder, RowsMissing
from streams.runtime.avro.plan import Unresolvable
from streams.runtime.avro.registry import (
    MemorySource,
    RegistrySource,
    RegistryUnavailable,
    SchemaSource,
    UnknownSchema,
    WriterSchema,
)
from streams.runtime.avro.span import ROW

__all__ = [
    "ROW",
    "Dead",
    "Decoded",
    "Decoder",
    "MemorySource",
    "RegistrySource",
    "RegistryUnavailable",
    "RowsMissing",
    "SchemaSource",
    "UnknownSchema",
    "Unresolvable",
    "WriterSchema",
]
