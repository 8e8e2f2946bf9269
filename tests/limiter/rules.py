"""Rules with names of their own."""

from __future__ import annotations

import uuid
from typing import Any

from schemas.limiter.rules import Rule

T = 1_767_225_600_000
"""2026-01-01, in milliseconds."""


def a_rule(**fields: Any) -> Rule:
    """A sliding window of 100 units in 10 s, but for `fields`; nobody else uses its counters."""
    made = {
        "rule_id": f"test-{uuid.uuid4().hex[:12]}",
        "algorithm": "SLIDING_WINDOW",
        "limit": 100,
        "window_ms": 10_000,
        **fields,
    }
    return Rule(**made)
