"""Callbacks: signed bytes, now, by one of our secrets; and nothing else."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.notifications.callbacks import (
    BadReport,
    NotSigned,
    report,
    sign,
    verify,
)
from connectors.webhooks import TOLERANCE_S

TOLERANCE_MS = 1_000 * TOLERANCE_S

NOW_S = 1_767_225_600
BODY = b'{"reference": "n-1/sms", "status": "delivered", "at": 1767225600000}'


def headers(
    secret: str = "s", at_s: int = NOW_S, body: bytes = BODY, **more: str
) -> dict[str, str]:
    made = {
        "webhook-id": "m-1",
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign(secret, "m-1", at_s, BODY),
    }
    return made | {name.replace("_", "-"): value for name, value in more.items()}


def accepted(given: dict[str, str], body: bytes = BODY, now_ms: int = NOW_S * 1_000) -> bool:
    try:
        verify(["s", "older"], given, body, now_ms)
    except NotSigned:
        return False
    return True


def test_the_signature_is_that_of_the_standard() -> None:
    digest = hmac.digest(b"s", b"m-1.1767225600." + BODY, hashlib.sha256)
    assert headers()["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


def test_either_secret_is_accepted_while_one_is_replaced() -> None:
    assert accepted(headers("s"))
    assert accepted(headers("older"))
    assert not accepted(headers("other"))
    both = f"{sign('x', 'm-1', NOW_S, BODY)} {sign('s', 'm-1', NOW_S, BODY)}"
    assert accepted(headers(webhook_signature=both))


@pytest.mark.parametrize(("offset_ms", "expected"), [(0, True), (1, False)])
def test_old_and_future_signatures_are_refused(offset_ms: int, expected: bool) -> None:
    now = NOW_S * 1_000
    assert accepted(headers(), now_ms=now + TOLERANCE_MS + offset_ms) is expected
    assert accepted(headers(), now_ms=now - TOLERANCE_MS - offset_ms) is expected


@pytest.mark.parametrize(
    "change",
    [
        {"webhook_id": "m-2"},
        {"webhook_id": ""},
        {"webhook_timestamp": str(NOW_S + 1)},
        {"webhook_timestamp": ""},
        {"webhook_timestamp": "١٧"},
        {"webhook_timestamp": "9" * 400},
        {"webhook_timestamp": "-1"},
        {"webhook_signature": ""},
        {"webhook_signature": "v1,"},
        {"webhook_signature": "v2,\ud800"},
    ],
)
def test_nothing_that_is_signed_can_be_changed(change: dict[str, str]) -> None:
    assert accepted(headers())
    assert not accepted(headers(**change))


@given(st.integers(0, len(BODY) - 1), st.integers(1, 255))
def test_the_bytes_count_and_not_what_they_mean(at: int, flip: int) -> None:
    changed = bytearray(BODY)
    changed[at] ^= flip
    assert not accepted(headers(), bytes(changed))
    assert not accepted(headers(), BODY + b" ")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"reference": "n-1", "status": "delivered", "at": 1}',
        b'{"reference": "n/1", "status": "lost", "at": 1}',
        b'{"reference": "n/1", "status": "delivered", "at": "now"}',
        b'{"reference": "' + b"x" * 600 + b'/1", "status": "delivered", "at": 1}',
    ],
)
def test_what_is_no_report_is_known_as_such(body: bytes) -> None:
    assert report(BODY).reference == "n-1/sms"
    with pytest.raises(BadReport):
        report(body)
