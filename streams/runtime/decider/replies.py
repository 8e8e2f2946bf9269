"""How a decider's verdict reaches who waits for it: a message, and a note for who asks later.

The decider publishes every verdict on the channel that the command's `reply_to` names and keeps it
under `answer_key` for `ANSWER_TTL_S`, both in Redis. Neither is the truth: a lost message makes
its sender wait until the deadline and then ask; a lost note makes it send the command again with
the same idempotency key, which repeats the verdict from the log.
"""

from __future__ import annotations

import msgspec

ANSWER_TTL_S = 3_600


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The verdict on one command: what the event at `topic/partition/offset` tells its sender.

    `body` is a JSON object as bytes. `source_offset` is the command's offset in the same partition
    of the command topic. `replay` says that the verdict is an earlier one, told again. Only
    `subject`, who sent the command, may see it.
    """

    correlation_id: str
    status: int
    body: bytes
    topic: str
    partition: int
    offset: int
    source_offset: int
    replay: bool = False
    subject: str = ""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Answer)


def encode(answer: Answer) -> bytes:
    """The message of a verdict."""
    return _ENCODER.encode(answer)


def decode(raw: bytes) -> Answer:
    """The inverse of `encode`; raises `msgspec.ValidationError` or `DecodeError`."""
    return _DECODER.decode(raw)


def channel(instance: str) -> str:
    """The pub/sub channel of one API process; this is the `reply_to` of its commands."""
    return f"headrace:replies:{instance}"


def answer_key(correlation_id: str) -> str:
    """Where the verdict of a command is kept for a while."""
    return f"headrace:answer:{correlation_id}"
