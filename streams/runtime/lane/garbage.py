"""How often Python looks for cycles while a lane runs.

A lane holds hundreds of thousands of records, which the collector counts as objects that might
form cycles (they cannot). With Python's defaults it walks all of them again and again: measured
at 1.3 of 2.4 CPU-seconds per million records. Cycles elsewhere in the process are still found,
only later.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS_MAX = 100_000
"""New objects alive before the youngest are looked at; several spans' worth."""
OLDER_EVERY = (20, 100)
"""Rounds of one generation before the next older one is looked at."""


def spare_records() -> None:
    """Make the collector of this process rare; safe to repeat."""
    gc.freeze()  # what was imported stays for good
    gc.set_threshold(YOUNG_OBJECTS_MAX, *OLDER_EVERY)
