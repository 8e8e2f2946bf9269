"""Event-time windows for use inside a pure fold: tumbling, hopping, session.

    spec = Spec(by=("campaign_id",), time="occurred_at",
                aggregates={"clicks": Count(), "cost_micros": Sum("cost_micros")})
    windows = tumbling(spec, size_ms=10_000)
    windows, update = windows.add(batch.frame, batch.watermark_ms)

Windows are immutable, and what they answer depends on the log alone, never on batch borders.
A fold hands `update.open_until_ms` and `update.open_from_offset` on in its `Outcome`, so that a
restart replays what is still open.
"""

from __future__ import annotations

from streams.runtime.window.aggregate import Aggregate, Count, Max, Min, Sum
from streams.runtime.window.panes import PaneWindows
from streams.runtime.window.session import SessionWindows
from streams.runtime.window.update import END, START, Emit, Spec, Update, Windows

__all__ = [
    "END",
    "START",
    "Aggregate",
    "Count",
    "Emit",
    "Max",
    "Min",
    "PaneWindows",
    "SessionWindows",
    "Spec",
    "Sum",
    "Update",
    "Windows",
    "hopping",
    "session",
    "tumbling",
]


def tumbling(spec: Spec, size_ms: int, offset_ms: int = 0) -> PaneWindows:
    """Windows `[n * size + offset, (n + 1) * size + offset)`."""
    return PaneWindows(spec, size_ms, size_ms, offset_ms)


def hopping(spec: Spec, size_ms: int, slide_ms: int, offset_ms: int = 0) -> PaneWindows:
    """Windows of `size` that begin every `slide` (at most `size`)."""
    return PaneWindows(spec, size_ms, slide_ms, offset_ms)


def session(spec: Spec, gap_ms: int) -> SessionWindows:
    """Sessions that end `gap` after their last row."""
    return SessionWindows(spec, gap_ms)
