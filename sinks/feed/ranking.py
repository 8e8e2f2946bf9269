"""The order of the ranked feed. It looks at ids, authors and times, never at the store, so another
order is another function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sinks.readers.redis import Entry

SPREAD_MS = 2 * 3_600_000
"""How much older a post counts for each newer one of its author: nobody fills a page alone."""

Ranked = tuple[int, Entry]
"""Score and entry."""


def ranked(newest: Sequence[Entry]) -> list[Ranked]:
    """Candidates, given newest first, in ranked order with their scores, highest first. What is
    newer than all candidates changes no score.
    """
    newer = Counter[str]()
    scored: list[Ranked] = []
    for entry in newest:
        scored.append((entry.time_ms - SPREAD_MS * newer[entry.origin], entry))
        newer[entry.origin] += 1
    return sorted(scored, key=standing, reverse=True)


def standing(ranked: Ranked) -> tuple[int, tuple[int, bytes]]:
    """Ascending, the opposite of the ranked order; no two entries have the same."""
    score, entry = ranked
    return score, entry.order()
