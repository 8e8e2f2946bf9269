"""Records of topics that have a reader rule, and a fold that keeps what reaches it."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import fastavro
import polars as pl
from confluent_kafka import Message

from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.decider.records import COMMAND_REJECTED, CONTROL_RECORDS, OWNERSHIP_CLAIMED
from streams.runtime.decider.wire import CAUSE, DECISION, Cause, Decision
from streams.runtime.derivation.wire import HEARTBEAT, NONE, SOURCE, Source
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Table, Upsert
from tests.runtime.clicks import CLICKED, topic
from tests.runtime.lane.bed import message, value

EVENTS = replace(topic(), decides="test.commands", records=(CLICKED, *CONTROL_RECORDS))
DERIVED = replace(topic(bound=0), derived_from=("test.sent",))
NONCES = [f"{n:032x}" for n in range(4)]
SEEN = Table("seen", {"offset": pl.Int64}, {"kind": pl.String, "watermark_ms": pl.Int64})


def encoded(schema_id: int, schema: Any, row: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def claim(offset: int, nonce: str) -> Message:
    row = {"nonce": nonce, "commands_topic_id": "t", "writer": "w"}
    return message(offset, encoded(2, OWNERSHIP_CLAIMED.schema, row), headers=[])


def event(
    offset: int,
    claim_offset: int,
    nonce: str,
    seq: int,
    source: int | None = None,
    *,
    at: int = 1_000,
    rejected: bool = False,
    **more: Any,
) -> Message:
    """A decided event; `source` None: a timer's, whose command is the one before."""
    decision = Decision(claim_offset, nonce, seq, seq if source is None else source)
    content = value(str(offset), at=at)
    if rejected:
        row = {"command": "c", "code": "no", "detail": "", "status": 409, "original_offset": -1}
        content = encoded(3, COMMAND_REJECTED.schema, row)
    headers = [(DECISION, decision.pack()), (CAUSE, Cause(0).pack())]
    return message(offset, more.get("content", content), headers=headers)


def derived(
    offset: int,
    at: tuple[int, int],
    prev: tuple[int, int] = NONE,
    *,
    source: str = "aa" * 8,
    partition: int = 0,
    partitions: int = 1,
    watermark_ms: int = 0,
    time_ms: int = 1_000,
) -> Message:
    """A derived record, or a heartbeat, which has no value."""
    header = Source(source, partition, partitions, *at, *prev, watermark_ms).pack()
    beat = at[1] == HEARTBEAT
    one = message(offset, value(str(offset), at=time_ms), headers=[(SOURCE, header)])
    if not beat:
        return one
    return Message(
        topic="test.clicks", partition=0, offset=offset, value=None, key=None,
        timestamp=(2, 2_000), headers=[(SOURCE, header)],
    )  # fmt: skip


@dataclass
class See:
    """Keeps what reaches it, with the watermark before it."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        seen = [
            frame.select(
                pl.col(OFFSET).alias("offset"),
                pl.lit(name.rsplit(".", 1)[1]).alias("kind"),
                pl.col(WATERMARK).alias("watermark_ms"),
            )
            for name, frame in batch.frames.items()
        ]
        for name, frame in batch.frames.items():
            if name == CLICKED.fullname and "poison" in frame["campaign"].to_list():
                raise ValueError("poison")
        rows = pl.concat(seen) if seen else pl.DataFrame(schema=SEEN.columns)
        return None, Outcome([Upsert(SEEN, rows)], {Fate.APPLIED: rows.height})

    def provisional(self, state: None) -> Sequence[Any]:
        return []
