"""Rate limiter: rules on the log, counters in Redis, and every decision on the log again.

A decision cannot wait for the log, so it is made by the counters, and logged. From the log come
the counts by rule and minute, the answer to "what would this rule have done yesterday?"
(`streams.limiter.replay`), and the counters themselves when Redis has lost them.
"""

from __future__ import annotations

from schemas.limiter.events import DECISIONS
from sinks import limiter as store
from streams.limiter.fold import CountDecisions
from streams.runtime.projection import Projection, System

SYSTEM = System(
    name="limiter",
    title="Rate limiter",
    projections=(
        Projection("limiter-decided", DECISIONS, CountDecisions(), store.DECIDED, store="redis"),
    ),
)
