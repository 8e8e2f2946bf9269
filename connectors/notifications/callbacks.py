"""What providers tell later, and the proof that it is they who tell it (`connectors.webhooks`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from connectors import webhooks
from connectors.webhooks import NotSigned

__all__ = ["BadReport", "NotSigned", "Report", "report", "sign", "verify"]


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
    """The value of the signature header; the text of the secret is the key."""
    return webhooks.sign(secret.encode(), id_, timestamp_s, body)


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now_ms: int) -> None:
    """Raise `NotSigned` unless one of the secrets signed these bytes about now."""
    webhooks.verify([secret.encode() for secret in secrets], headers, body, now_ms / 1_000)


def report(body: bytes) -> Report:
    """The report in a body. Raises `BadReport`."""
    try:
        told = _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadReport(str(error)) from None
    if "/" not in told.reference or len(told.reference) > 512:
        raise BadReport("the reference is not one of ours")
    return told
