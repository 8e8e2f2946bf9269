"""What a lane reports through: the metric children of one agent, looked up once.

A batch costs a dozen additions and no label lookup. The lag gauges are computed at the scrape
from what the lane last said, so that an agent that is stuck shows a growing lag and delay
instead of its last good values.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import Counter

if TYPE_CHECKING:
    from streams.runtime.metrics.catalogue import Metrics


@dataclass(slots=True)
class _Progress:
    """What the lane last said about one partition; the gauges read it at the scrape."""

    next_offset: int = 0
    log_end: int = 0
    appended_ms: int | None = None
    watermark_ms: int | None = None

    def lag(self) -> int:
        return max(0, self.log_end - self.next_offset)

    def age_s(self, now_s: float) -> float:
        """Seconds since the newest folded record was appended, 0 when nothing waits behind it."""
        if self.appended_ms is None or not self.lag():
            return 0.0
        return max(0.0, now_s - self.appended_ms / 1000)

    def watermark_delay_s(self, now_s: float) -> float:
        """NaN before the first event: there is no watermark to be behind of."""
        return math.nan if self.watermark_ms is None else now_s - self.watermark_ms / 1000


class AgentMetrics:
    """The metrics of one agent. Thread safe; every method is cheap and never raises.

    A partition's lag series exist from `assigned` to `revoked`, so that a partition that moved
    to another process is not reported twice.
    """

    def __init__(
        self,
        metrics: Metrics,
        agent: str,
        *,
        system: str,
        topic: str,
        store: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = metrics
        self._agent, self._topic, self._store, self._clock = agent, topic, store, clock
        self._labels = labels = (system, agent, topic)
        flow, trouble = metrics.flow, metrics.trouble
        self._batches = flow.batches.labels(*labels)
        self._batch_rows = flow.batch_rows.labels(*labels)
        self._decode = flow.decode.labels(*labels)
        self._fold = flow.fold.labels(*labels)
        self._write = flow.write.labels(*labels, store)
        self._end_to_end = flow.end_to_end.labels(*labels)
        self._queue_rows = flow.queue_rows.labels(*labels)
        self._assigned = metrics.lag.assigned.labels(*labels)
        self._fence_refusals = trouble.fence_refusals.labels(*labels, store)
        self._registry_retries = trouble.registry_retries.labels(*labels)
        self._late_rows = trouble.late_rows.labels(*labels)
        self._restarts = trouble.worker_restarts.labels(*labels)
        self._fates: dict[str, Counter] = {}
        self._partitions: dict[int, _Progress] = {}
        self._lock = Lock()

    def count(self, fate: str, rows: int = 1) -> None:
        """`rows` met this fate (a `Fate`)."""
        child = self._fates.get(fate)
        if child is None:
            child = self._fates[fate] = self.metrics.flow.rows.labels(*self._labels, str(fate))
        child.inc(rows)

    def observe_batch(self, rows: int, *, decode_s: float, fold_s: float, write_s: float) -> None:
        """A batch of `rows` was decoded, folded and stored in these seconds."""
        self._batches.inc()
        self._batch_rows.observe(rows)
        self._decode.observe(decode_s)
        self._fold.observe(fold_s)
        self._write.observe(write_s)

    def observe_end_to_end(self, oldest_append_ms: int) -> None:
        """A write became durable now; its oldest record was appended at this Unix time."""
        self._end_to_end.observe(max(0.0, self._clock() - oldest_append_ms / 1000))

    def queue(self, rows: int) -> None:
        """So many records are fetched and not folded yet."""
        self._queue_rows.set(rows)

    def fence_refused(self) -> None:
        """A write was refused by the fence."""
        self._fence_refusals.inc()

    def sink_retry(self, reason: str) -> None:
        """A write is tried again; `reason` is an exception's class name, never its text."""
        self.metrics.trouble.sink_retries.labels(*self._labels, self._store, reason).inc()

    def registry_retry(self) -> None:
        """A schema look-up is tried again."""
        self._registry_retries.inc()

    def dead_letter(self, reason: str, rows: int = 1) -> None:
        """Records went to the dead letter topic; `reason` is from a small set."""
        self.metrics.trouble.dead_letters.labels(*self._labels, reason).inc(rows)

    def late(self, rows: int) -> None:
        """Rows went to the late side output."""
        self._late_rows.inc(rows)

    def stale(self, reason: str, rows: int) -> None:
        """The reader rule refused rows; `reason` is from a small set."""
        self.metrics.trouble.stale_rows.labels(*self._labels, reason).inc(rows)

    def restarted(self, times: int = 1) -> None:
        """The agent was started again after errors. A new process is told how often its
        predecessors were, so that the counter goes on where theirs ended.
        """
        self._restarts.inc(times)

    def assigned(self, partitions: Iterable[int]) -> None:
        """This process folds these partitions from now on, beside those it has."""
        with self._lock:
            for partition in partitions:
                if partition not in self._partitions:
                    self._partitions[partition] = _Progress()
                    self._show(partition, self._partitions[partition])
            self._assigned.set(len(self._partitions))

    def revoked(self, partitions: Iterable[int]) -> None:
        """This process no longer folds these; their lag series end."""
        with self._lock:
            for partition in partitions:
                if self._partitions.pop(partition, None) is not None:
                    self._hide(partition)
            self._assigned.set(len(self._partitions))

    def counted(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Rows by fate since the beginning, before a write that is durable now and after it."""
        for fate, rows in after.items():
            if rows > before.get(fate, 0):
                self.count(fate, rows - before.get(fate, 0))

    def progress(
        self, partition: int, next_offset: int, *, watermark_ms: int, appended_ms: int | None = None
    ) -> None:
        """The stored position of a partition: first offset not folded, watermark, and when the
        newest folded record was appended (None: not known). Ignored unless assigned.
        """
        progress = self._partitions.get(partition)
        if progress is None:
            return
        progress.next_offset = next_offset
        progress.log_end = max(progress.log_end, next_offset)
        if appended_ms is not None:
            progress.appended_ms = appended_ms
        if watermark_ms > 0:  # NO_WATERMARK, and a batch that never had one, are not
            progress.watermark_ms = watermark_ms

    def log_end(self, partition: int, offset: int) -> None:
        """The end of a partition's log (the next offset to be written). Ignored unless assigned."""
        progress = self._partitions.get(partition)
        if progress is not None:
            progress.log_end = offset

    def rebuilding(self, rows: int, target_rows: int, seconds: float) -> None:
        """A rebuild has folded `rows` of `target_rows` after so many seconds."""
        rebuild = self.metrics.rebuild
        rebuild.rows.labels(*self._labels).set(rows)
        rebuild.target.labels(*self._labels).set(target_rows)
        rebuild.seconds.labels(*self._labels).set(seconds)

    def _show(self, partition: int, progress: _Progress) -> None:
        lag, clock = self.metrics.lag, self._clock
        group = (self._agent, self._topic, str(partition))
        lag.records.labels(*group).set_function(progress.lag)
        lag.current_offset.labels(*group).set_function(lambda: progress.next_offset)
        labels = (*self._labels, str(partition))
        lag.seconds.labels(*labels).set_function(lambda: progress.age_s(clock()))
        lag.watermark_delay.labels(*labels).set_function(
            lambda: progress.watermark_delay_s(clock())
        )

    def _hide(self, partition: int) -> None:
        lag = self.metrics.lag
        lag.records.remove(self._agent, self._topic, str(partition))
        lag.current_offset.remove(self._agent, self._topic, str(partition))
        lag.seconds.remove(*self._labels, str(partition))
        lag.watermark_delay.remove(*self._labels, str(partition))
