"""Which texts are codes of short links."""

from __future__ import annotations

import re
from typing import Final

CODE_CHARS: Final = 7
"""62**7 are 3.5 million million codes."""
CODE: Final = r"[A-Za-z0-9_-]{3,64}"
RESERVED: Final = frozenset({"livez", "readyz", "metrics", "info", "docs", "redoc", "v1"})
"""First words of other paths, whatever their case."""
_CODE: Final = re.compile(CODE, re.ASCII)


def is_code(text: str) -> bool:
    """Whether a short link may have that code."""
    return _CODE.fullmatch(text) is not None and text.lower() not in RESERVED
