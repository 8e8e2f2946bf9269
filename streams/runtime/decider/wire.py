"""What commands and events carry in their record headers.

An event's first header is `headrace-decision`, 40 bytes: the claim it was decided under (offset
and nonce), its sequence number and the offset of its command (rule A1). With fixed width the
headers of a whole batch are joined and read as columns. A claim has no such header: its own
offset is the epoch, its nonce is in its value.

The other headers are text. An event repeats those of its command, so that any owner can answer
and recover idempotency keys from the events alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from streams.runtime.decider.rules import Envelope

DECISION = "headrace-decision"
CORRELATION_ID = "headrace-correlation-id"
REPLY_TO = "headrace-reply-to"
IDEMPOTENCY_KEY = "headrace-idempotency-key"
FINGERPRINT = "headrace-fingerprint"
SUBJECT = "headrace-subject"

_DECISION = struct.Struct(">q16sqq")
DECISION_DTYPE = np.dtype(
    [("claim_offset", ">i8"), ("nonce", "V16"), ("seq", ">i8"), ("source_offset", ">i8")]
)
"""The decision headers of a batch, joined, as a numpy record array."""

_FIELDS = {
    CORRELATION_ID: "correlation_id",
    REPLY_TO: "reply_to",
    IDEMPOTENCY_KEY: "idempotency_key",
    FINGERPRINT: "fingerprint",
    SUBJECT: "subject",
}

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Decision:
    """The place of an event in its writer's decisions; `nonce` is 32 hexadecimal digits."""

    claim_offset: int
    nonce: str
    seq: int
    source_offset: int

    def pack(self) -> bytes:
        """The 40 bytes of the header."""
        nonce = bytes.fromhex(self.nonce)
        return _DECISION.pack(self.claim_offset, nonce, self.seq, self.source_offset)

    @classmethod
    def unpack(cls, raw: bytes) -> Decision:
        """The inverse of `pack`; raises `struct.error` for another length."""
        claim_offset, nonce, seq, source_offset = _DECISION.unpack(raw)
        return cls(claim_offset, nonce.hex(), seq, source_offset)


def envelope_headers(envelope: Envelope) -> Headers:
    """The text headers of a command, or of the event that answers it; empty ones are left out."""
    named = ((header, getattr(envelope, name)) for header, name in _FIELDS.items())
    return [(header, text.encode()) for header, text in named if text]


def envelope_of(headers: Iterable[tuple[str, bytes | None]] | None, place: str) -> Envelope:
    """The envelope of a record. Unknown headers are ignored, text that is no UTF-8 is replaced; a
    record without correlation id is named by its `place` (`topic/partition/offset`).
    """
    found: Mapping[str, str] = {
        _FIELDS[name]: value.decode(errors="replace")
        for name, value in headers or ()
        if name in _FIELDS and value
    }
    return Envelope(**{"correlation_id": place, **found})
