"""Which records of a span are set aside, as letters with the record's own bytes."""

from __future__ import annotations

from collections.abc import Sequence

from streams.runtime.batch import OFFSET, WATERMARK
from streams.runtime.dead_letters import Letter, dead_letter, late_letter
from streams.runtime.lane.span import Span
from streams.runtime.outcome import Outcome
from streams.runtime.projection import Projection


def letters_of(
    projection: Projection,
    span: Span,
    dead: Sequence[tuple[int, str]],
    outcome: Outcome,
    *,
    fresh: int,
    error: BaseException | None = None,
) -> tuple[list[Letter], list[Letter]]:
    """Dead letters and late letters. `dead` are records that never reached the fold; those below
    `fresh` were reported before a restart and are left out.
    """
    reasons = {offset: why for offset, why in dead if offset >= fresh} | dict(outcome.dead)
    late = outcome.late.values() if projection.late_output else ()
    if not reasons and not late:
        return [], []
    topic, agent = projection.topic, projection.name
    rows = {offset: row for row, offset in enumerate(span.offsets().tolist())}
    dead_letters = [
        dead_letter(
            topic.dead_letters, span.messages[rows[offset]], agent=agent, reason=why, error=error
        )
        for offset, why in sorted(reasons.items())
    ]
    late_letters = [
        late_letter(topic.late, span.messages[rows[offset]], agent=agent, watermark_ms=watermark_ms)
        for frame in late
        for offset, watermark_ms in zip(
            frame[OFFSET].to_list(), frame[WATERMARK].to_list(), strict=True
        )
    ]
    return dead_letters, late_letters
