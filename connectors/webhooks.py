"""The proof that a webhook is the provider's: Standard Webhooks, over the bytes as they came.

HMAC-SHA256 over `id.timestamp.body`; several secrets are good while one is replaced by another.
Whatever is wrong with headers or signature is `NotSigned`, never another error.
Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

TOLERANCE_S: Final = 300
"""An older or younger signature is refused, so what was overheard cannot be sent for ever."""
SIGNATURES_MAX: Final = 8
ID_CHARS_MAX: Final = 256
TIMESTAMP_DIGITS_MAX: Final = 12
_PREFIX: Final = "whsec_"


class NotSigned(ValueError):
    """Nothing proves that this is from the provider."""


def key_of(secret: str) -> bytes:
    """The key of a secret as providers show it: `whsec_` and base64. Raises `ValueError`."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError as error:
        raise ValueError("a webhook secret is whsec_ and base64") from error
    if not key:
        raise ValueError("a webhook secret is not empty")
    return key


def sign(key: bytes, id_: str, timestamp_s: int, body: bytes) -> str:
    """The value of the signature header."""
    digest = hmac.new(key, f"{id_}.{timestamp_s}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def signed(keys: Sequence[bytes], id_: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The headers of a webhook, with a signature of each key: while one secret is replaced by
    another, receivers that know either can check it.
    """
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(sign(key, id_, timestamp_s, body) for key in keys),
    }


def new_secret() -> str:
    """A secret of 24 random bytes, as it is shown."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(24)).decode()


def verify(keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now_s: float) -> str:
    """The webhook's id, when one of the keys signed these bytes about now; raises `NotSigned`.

    Every key is tried against every signature, each in constant time, so how long it takes says
    nothing about how near a guess was.
    """
    id_ = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not 0 < len(id_) <= ID_CHARS_MAX or not id_.isprintable() or not id_.isascii():
        raise NotSigned("webhook-id is required")
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > TIMESTAMP_DIGITS_MAX:
        raise NotSigned("webhook-timestamp is required, in seconds")
    if abs(now_s - int(timestamp)) > TOLERANCE_S:
        raise NotSigned("the signature is too old, or of the future")
    # As bytes, since comparing texts that are not ASCII is an error.
    given = headers.get("webhook-signature", "").encode("utf-8", "replace").split(b" ")
    expected = [sign(key, id_, int(timestamp), body).encode() for key in keys]
    tried = given[:SIGNATURES_MAX]
    fits = [hmac.compare_digest(one, other) for one in tried for other in expected]
    if not any(fits):
        raise NotSigned("no signature fits")
    return id_
