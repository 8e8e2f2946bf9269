"""The two record types that every event topic of a decider carries beside its own.

Both are written and understood by the runtime. `OwnershipClaimed` never reaches a fold; a
`CommandRejected` reaches those of projections, like any event, but changes no decider's state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import polars as pl

from streams.runtime.topic import RecordType

Field = tuple[str, str, str]
"""Name, Avro type and doc of a field."""


@dataclass(frozen=True, slots=True)
class OwnershipClaimed:
    """A writer claims a partition: from here on only its events count (rule A1)."""

    nonce: str
    """128 random bits in hexadecimal, new for every claim."""
    commands_topic_id: str
    """Kafka's id of the command topic that the writer reads; a re-created topic has another."""
    writer: str
    """Host and process of the writer, for people."""


@dataclass(frozen=True, slots=True)
class CommandRejected:
    """A command changed nothing: refused by a rule, a repeat, unreadable, or its rule failed."""

    command: str
    """Full name of the command's record; empty where it could not be read."""
    code: str
    """Why, for programs: the rule's code, or duplicate, key_reused, unreadable, too_large,
    failed."""
    detail: str
    """Why, for people."""
    status: int
    """HTTP status of the reply."""
    original_offset: int
    """Of a repeat: the offset of the event that its first delivery led to; else -1."""


def _record(row: type, fields: list[Field], dtypes: dict[str, object]) -> RecordType:
    name, doc = row.__name__, (row.__doc__ or "").strip()
    avro = [{"name": field, "type": kind, "doc": about} for field, kind, about in fields]
    schema = {"type": "record", "name": name, "namespace": "headrace", "doc": doc, "fields": avro}
    avsc = json.dumps(schema, separators=(",", ":"))
    return RecordType(f"headrace.{name}", avsc, dtypes, row)


OWNERSHIP_CLAIMED = _record(
    OwnershipClaimed,
    [
        ("nonce", "string", "128 random bits in hexadecimal."),
        ("commands_topic_id", "string", "Kafka's id of the command topic."),
        ("writer", "string", "Host and process of the writer, for people."),
    ],
    {"nonce": pl.String, "commands_topic_id": pl.String, "writer": pl.String},
)

COMMAND_REJECTED = _record(
    CommandRejected,
    [
        ("command", "string", "Full name of the command's record, or empty."),
        ("code", "string", "Why, for programs."),
        ("detail", "string", "Why, for people."),
        ("status", "int", "HTTP status of the reply."),
        ("original_offset", "long", "Of a repeat: offset of the event it first led to; else -1."),
    ],
    {
        "command": pl.String,
        "code": pl.String,
        "detail": pl.String,
        "status": pl.Int32,
        "original_offset": pl.Int64,
    },
)

CONTROL_RECORDS = (OWNERSHIP_CLAIMED, COMMAND_REJECTED)
