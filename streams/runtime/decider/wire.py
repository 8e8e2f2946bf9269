"""What commands and events carry in their record headers.

An event's first header is `headrace-decision`, 40 bytes: the claim it was decided under (offset
and nonce), its sequence number and the offset of its command (rule A1). With fixed width the
headers of a whole batch are joined and read as columns. A claim has no such header: its own
offset is the epoch, its nonce is in its value.

The second header of an event is `headrace-cause`: the time of what caused it (the command's append
time, or the time the timer was set to) and, of a timer, its name. A fold of the events alone needs
it, and only it tells a timer's event from a command's.

The other headers are text. An event repeats those of its command, so that any owner can answer
and recover idempotency keys from the events alone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from streams.runtime.decider.rules import Envelope

DECISION = "headrace-decision"
CAUSE = "headrace-cause"
CORRELATION_ID = "headrace-correlation-id"
REPLY_TO = "headrace-reply-to"
IDEMPOTENCY_KEY = "headrace-idempotency-key"
FINGERPRINT = "headrace-fingerprint"
SUBJECT = "headrace-subject"

_DECISION = struct.Struct(">q16sqq")
_PLACE = struct.Struct(">qq")
DECISION_BYTES = _DECISION.size
EPOCH_BYTES = DECISION_BYTES - _PLACE.size
"""The first bytes of the header: claim offset and nonce."""
TEXT_BYTES_MAX = 4_096
"""A longer text header counts as missing, so that what an event repeats has a bound."""
_TIME = struct.Struct(">q")
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

_TRACE = frozenset({"traceparent", "tracestate"})
"""What an event repeats of its command's headers beside the envelope: W3C Trace Context."""

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

    def signer(self) -> Callable[[int, int], bytes]:
        """`pack` for other sequence numbers and source offsets of the same epoch, for loops."""
        epoch, pack = self.pack()[:EPOCH_BYTES], _PLACE.pack
        return lambda seq, source_offset: epoch + pack(seq, source_offset)

    @classmethod
    def unpack(cls, raw: bytes) -> Decision:
        """The inverse of `pack`; raises `struct.error` for another length."""
        claim_offset, nonce, seq, source_offset = _DECISION.unpack(raw)
        return cls(claim_offset, nonce.hex(), seq, source_offset)


@dataclass(frozen=True, slots=True)
class Cause:
    """What an event was decided for: a command at its append time, or a timer at its time."""

    time_ms: int
    timer: str = ""
    """The timer's name; "" for a command."""

    def pack(self) -> bytes:
        """The bytes of the header."""
        return _TIME.pack(self.time_ms) + self.timer.encode()

    @classmethod
    def of(cls, headers: Headers) -> Cause:
        """That of an event's headers, where it is the second. Raises `ValueError`."""
        if len(headers) < 2 or headers[1][0] != CAUSE:
            raise ValueError(f"no {CAUSE} header behind {DECISION}")
        return cls.unpack(headers[1][1])

    @classmethod
    def unpack(cls, raw: bytes) -> Cause:
        """The inverse of `pack`; raises `ValueError` or `struct.error` for other bytes."""
        (time_ms,) = _TIME.unpack_from(raw)
        return cls(time_ms, raw[_TIME.size :].decode())


def is_timer(headers: Iterable[tuple[str, bytes | None]] | None) -> bool:
    """Whether a record with these headers is a timer's event."""
    return any(name == CAUSE and len(raw or b"") > _TIME.size for name, raw in headers or ())


def decision_header(headers: Sequence[tuple[str, bytes]] | None) -> bytes | None:
    """The decision header of a record, unread; it must be the first one."""
    if not headers or headers[0][0] != DECISION:
        return None
    return headers[0][1]


def decision_of(headers: Sequence[tuple[str, bytes]] | None) -> Decision | None:
    """The decision that a record says it is; None where it says nothing that can be read."""
    header = decision_header(headers)
    try:
        return None if header is None else Decision.unpack(header)
    except struct.error:
        return None


def envelope_headers(envelope: Envelope) -> Headers:
    """The text headers of a command, or of the event that answers it; empty ones are left out."""
    named = ((header, getattr(envelope, name)) for header, name in _FIELDS.items())
    return [(header, text.encode()) for header, text in named if text]


def envelope_of(headers: Iterable[tuple[str, bytes | None]] | None, place: str) -> Envelope:
    """The envelope of a record. Unknown headers are ignored, text that is no UTF-8 is replaced; a
    record without correlation id is named by its `place` (`topic/partition/offset`).
    """
    return carried(headers, place)[0]


def carried(
    headers: Iterable[tuple[str, bytes | None]] | None, place: str, offset: int | None = None
) -> tuple[Envelope, Headers]:
    """The envelope of a command, and the headers that its event repeats: those, and its trace.

    `place` is the record's, or that of its partition when `offset` is given.
    """
    named = reply_to = key = fingerprint = subject = ""
    kept: Headers = []
    for name, value in headers or ():
        if not value or len(value) > TEXT_BYTES_MAX:
            continue
        if name == CORRELATION_ID:
            named = value.decode("utf-8", "replace")
        elif name == REPLY_TO:
            reply_to = value.decode("utf-8", "replace")
        elif name == IDEMPOTENCY_KEY:
            key = value.decode("utf-8", "replace")
        elif name == FINGERPRINT:
            fingerprint = value.decode("utf-8", "replace")
        elif name == SUBJECT:
            subject = value.decode("utf-8", "replace")
        elif name not in _TRACE:
            continue
        kept.append((name, value))
    if not named:
        named = place if offset is None else f"{place}/{offset}"
        kept.append((CORRELATION_ID, named.encode()))
    return Envelope(named, reply_to, key, fingerprint, subject), kept
