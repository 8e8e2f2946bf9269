"""Which texts name pastes and their contents, and what a content may be."""

from __future__ import annotations

import re
from typing import Final

CONTENT_BYTES_MAX: Final = 10_000_000
"""Of a content in UTF-8."""
ID_CHARS: Final = 12
"""62**12 is 71 bits: who has no link finds no paste by trying."""
ID: Final = rf"[A-Za-z0-9]{{{ID_CHARS}}}"
_OBJECT: Final = re.compile(r"([0-9a-f]{64})/(\d{1,15})-[0-9a-f]{16}", re.ASCII)


def object_name(sha256: str, stored_ms: int, nonce: str) -> str:
    """What an object with a content is called: the content's hash, when it was stored, and 16
    hexadecimal digits of its own, so that no name is ever used twice.
    """
    return f"{sha256}/{stored_ms}-{nonce}"


def parts_of(name: str) -> tuple[str, int] | None:
    """The hash and the time in an object's name; None for a name that is none."""
    found = _OBJECT.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))
