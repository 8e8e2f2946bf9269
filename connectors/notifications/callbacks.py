"""What providers tell later, and the proof that it is they who tell it.

Signatures are those of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, with the body's
bytes as they came. Several secrets are accepted while one is replaced by another.
Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

TOLERANCE_MS = 300_000
"""An older or younger signature is refused, so that what was overheard cannot be sent for ever."""


class NotSigned(ValueError):
    """Nothing proves that this is from the provider."""


class BadReport(ValueError):
    """Signed, and not a report."""


class Report(msgspec.Struct, frozen=True):
    """What became of a message. `reference` is the id it was sent with, `at` milliseconds."""

    reference: str
    status: Literal["delivered", "failed", "invalid_address"]
    at: int
    message_id: str = ""
    detail: str = ""


_DECODER = msgspec.json.Decoder(Report)


def sign(secret: str, id_: str, timestamp_s: int, body: bytes) -> str:
    """The value of the signature header."""
    signed = f"{id_}.{timestamp_s}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_ms: int) -> None:
    """Raise `NotSigned` unless one of the secrets signed these bytes about now.

    Every secret is tried against every signature and compared in constant time, so how long it
    takes says nothing about how near a guess was.
    """
    id_ = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not id_ or not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise NotSigned("webhook-id and webhook-timestamp are required")
    if abs(now_ms - int(timestamp) * 1_000) > TOLERANCE_MS:
        raise NotSigned("the signature is too old, or of the future")
    given = headers.get("webhook-signature", "").encode("utf-8", "replace").split(b" ")[:8]
    expected = [sign(secret, id_, int(timestamp), body).encode() for secret in secrets]
    matches = [hmac.compare_digest(one, other) for one in given for other in expected]
    if not any(matches):
        raise NotSigned("no signature fits")


def report(body: bytes) -> Report:
    """The report in a body. Raises `BadReport`."""
    try:
        told = _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadReport(str(error)) from None
    if "/" not in told.reference or len(told.reference) > 512:
        raise BadReport("the reference is not one of ours")
    return told
