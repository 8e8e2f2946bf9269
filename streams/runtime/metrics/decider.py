"""What a decider reports through, beside the metrics of every agent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streams.runtime.metrics.catalogue import Metrics


class DeciderMetrics:
    """The metrics of one decider; the totals it is told are those since a partition was taken."""

    def __init__(self, metrics: Metrics, labels: tuple[str, str, str]) -> None:
        self._decisions = metrics.decisions
        self._labels = labels
        self._told: dict[tuple[int, str], Counter[str]] = {}
        self._seconds = metrics.decisions.seconds.labels(*labels)
        self._dropped = metrics.decisions.replies_dropped.labels(*labels)

    def tell(
        self, partition: int, in_flight: int, claims: int, totals: Mapping[str, Counter[str]]
    ) -> None:
        """What an owner has counted so far: `totals` by kind (decided, stale, abandoned)."""
        self._decisions.in_flight.labels(*self._labels, str(partition)).set(in_flight)
        known = {
            "decided": self._decisions.decided,
            "stale": self._decisions.stale,
            "abandoned": self._decisions.abandoned,
        }
        for kind, counts in totals.items():
            for word, more in self._more(partition, kind, counts).items():
                known[kind].labels(*self._labels, word).inc(more)
        for more in self._more(partition, "claims", Counter(claims=claims)).values():
            self._decisions.claims.labels(*self._labels).inc(more)

    def forget(self, partition: int) -> None:
        """The partition is somebody else's now; the counts of its next owner begin at zero."""
        for key in [one for one in self._told if one[0] == partition]:
            del self._told[key]
        self._decisions.in_flight.labels(*self._labels, str(partition)).set(0)

    def worked(self, seconds: float) -> None:
        """One piece of work was done."""
        self._seconds.observe(seconds)

    def recovered(self, seconds: float) -> None:
        """A partition that was assigned so long ago is decided for."""
        self._decisions.recovery.labels(*self._labels).observe(seconds)

    def dropped(self, replies: int) -> None:
        """So many verdicts were not told."""
        self._dropped.inc(replies)

    def snapshot(self, partition: int, size: int, seconds: float) -> None:
        """A snapshot was written now."""
        labels = (*self._labels, str(partition))
        self._decisions.snapshot_time.labels(*labels).set(time.time())
        self._decisions.snapshot_bytes.labels(*labels).set(size)
        self._decisions.snapshot_seconds.labels(*self._labels).observe(seconds)

    def _more(self, partition: int, kind: str, counts: Counter[str]) -> Counter[str]:
        before = self._told.get((partition, kind), Counter())
        self._told[partition, kind] = counts.copy()
        return counts - before
