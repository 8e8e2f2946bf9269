"""Which user agents fetch a link without a person."""

from __future__ import annotations

import re
from typing import Final

BOTS: Final = (
    r"(?i)(^|[^u])bot\b|bot/|crawl|spider|slurp|preview|facebookexternalhit|whatsapp|embedly"
    r"|curl/|wget/|python-|go-http-client|okhttp|java/|headless|monitor|^$"
)
"""What they say of themselves, for Python and Polars alike; `[^u]` spares the phones named Cubot.
A new rule counts the past anew: `headrace rebuild links-clicks`."""
_BOTS: Final = re.compile(BOTS)


def is_bot(user_agent: str) -> bool:
    """Whether a click of it does not count by today's rule."""
    return _BOTS.search(user_agent) is not None
