"""Digests: notifications of one recipient and key, gathered by a window of event time. Pure.

A digest's id follows from recipient, key, window length and begin, and its content from the items
in the order they were accepted. So it keeps both however often anything is delivered again.
"""

from __future__ import annotations

import json
from hashlib import blake2b

import msgspec

from streams.notifications.state import CLOSED, Digest
from streams.runtime.decider.rules import State

GRACE_MS = 5_000
"""A window takes items for so long after its end: what happened in it may come later."""
ITEMS_MAX = 100
"""A digest shows so many items; the others are counted."""


def window_of(
    state: State, owner: tuple[str, str, int], happened_ms: int, time_ms: int
) -> tuple[str, int]:
    """Digest and window begin for something that happened then and is accepted now.

    The window of its own time; where that one is over, or closed before its time by a clock that
    runs ahead, the first that is still open: a window leads to one digest and never to a second.
    """
    window_ms = owner[2]
    start = min(happened_ms, time_ms) // window_ms * window_ms
    if start + window_ms + GRACE_MS <= time_ms:
        start = time_ms // window_ms * window_ms
    closed = state[CLOSED].get(owner)
    if closed is not None and start <= closed:
        start = closed + window_ms
    return digest_id(owner, start), start


def digest_id(owner: tuple[str, str, int], start_ms: int) -> str:
    """The id of the digest of a recipient, key and window."""
    identity = json.dumps([*owner, start_ms]).encode()
    return f"digest-{blake2b(identity, digest_size=16).hexdigest()}"


def due(start_ms: int, window_ms: int) -> int:
    """When a window is closed."""
    return start_ms + window_ms + GRACE_MS


def joined(before: Digest | None, one: Digest) -> Digest:
    """A digest and one more item, which is all there is in `one`."""
    if before is None:
        return one
    if len(before.items) < ITEMS_MAX:
        return msgspec.structs.replace(one, items=before.items + one.items)
    return msgspec.structs.replace(one, items=before.items, more=before.more + 1)


def content(digest: Digest) -> str:
    """What goes into the template of a digest, as JSON: count, items (their parameters), more."""
    told = {
        "count": len(digest.items) + digest.more,
        "items": [json.loads(item.params) for item in digest.items],
        "more": digest.more,
        "window_start": digest.window_start,
        "window_end": digest.window_start + digest.window_ms,
    }
    return msgspec.json.encode(told, order="sorted").decode()
