"""What a topic is: the records it may carry, its key, its event time, its partitions.

`schemas/<system>/topics.toml` and the `.avsc` files beside it are the source; the
generated `schemas/<system>/events.py` holds the same as Python constants. Kafka topics,
registry subjects, the AsyncAPI document, docs and tests all derive from these objects.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal


@dataclass(frozen=True, slots=False)
class RecordType:
    """One Avro record that a topic may carry.

    `avsc` is the canonical JSON text of the schema (the reader's schema). `dtypes` are the
    Polars types of its columns, in field order; timestamps are `Datetime("ms", "UTC")`.
    `row` is the generated frozen dataclass of one record.
    """

    fullname: str
    avsc: str
    dtypes: Mapping[str, Any]
    row: type

    @property
    def name(self) -> str:
        """The name without its namespace, for example `AdClicked`."""
        return self.fullname.rsplit(".", 1)[-1]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The parsed schema."""
        parsed: dict[str, Any] = json.loads(self.avsc)
        return parsed

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Field names in schema order."""
        return tuple(self.dtypes)


@dataclass(frozen=True)
class Topic:
    """One declared topic.

    `key` names the field whose text is the record key; `event_time` names the field that
    drives the watermark, or is None where a topic has no event time. `columnar` says that
    every record type decodes without the row fallback (a test pins it).
    Durations are milliseconds; `retention_ms` -1 keeps everything.

    `decides` names the command topic of which this is the decider's event topic; readers then
    apply the reader rule A2. `derived_from` names the topics that derivations fill this one from;
    readers then apply rule B2.

    `retries` names the reactors that read this topic, with the delays of their retry topics
    (milliseconds, ascending): there is a topic `retry_topic(reactor, delay)` for each.

    `encoding` says what the values are. "json" is for topics that others write: projections read
    them (`streams.runtime.json` has the limits), nothing of ours writes them, and the registry
    hears nothing of their schema, which then only says what is read.
    """

    name: str
    records: tuple[RecordType, ...]
    key: str
    event_time: str | None
    partitions: int
    owner: str
    doc: str
    retention_ms: int = -1
    cleanup_policy: str = "delete"
    allowed_lateness_ms: int = 0
    out_of_orderness_ms: int = 0
    future_skew_ms: int = 60_000
    columnar: bool = True
    decides: str | None = None
    derived_from: tuple[str, ...] = ()
    retries: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    encoding: Literal["avro", "json"] = "avro"

    def record(self, fullname: str) -> RecordType:
        """The record type of that full name; KeyError names the topic and what it has."""
        for record in self.records:
            if record.fullname == fullname:
                return record
        known = ", ".join(r.fullname for r in self.records)
        raise KeyError(f"topic {self.name} carries {known}, not {fullname}")

    def subject(self, record: RecordType) -> str:
        """Registry subject by TopicRecordNameStrategy: `<topic>-<record full name>`."""
        return f"{self.name}-{record.fullname}"

    @property
    def dead_letters(self) -> str:
        """Where records that cannot be processed go, with the reason in headers."""
        return f"{self.name}.dlq"

    @property
    def late(self) -> str:
        """The late side output: rows behind the allowed lateness."""
        return f"{self.name}.late"


def retry_topic(reactor: str, delay_ms: int) -> str:
    """Where the records of a reactor wait for so long: `<reactor>.retry.30s`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if delay_ms % size == 0:
            return f"{reactor}.retry.{delay_ms // size}{unit}"
    return f"{reactor}.retry.{delay_ms}ms"
