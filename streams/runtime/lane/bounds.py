"""Whether the log can continue a stored position."""

from __future__ import annotations

from streams.runtime.kafka import LogBounds
from streams.runtime.lane.span import Seat
from streams.runtime.position import Position
from streams.runtime.topic import Topic


class LogMismatch(RuntimeError):
    """Stored position and log do not belong together; a person must decide. Says what to do."""


def check_partitions(agent: str, topic: Topic, log_bounds: LogBounds) -> None:
    """Raise `LogMismatch` unless the topic has as many partitions as the catalogue says.

    Keys go to other partitions as soon as there are more: their rows would fold apart from their
    past, and readers would look for them where they no longer are.
    """
    if log_bounds.partitions != topic.partitions:
        raise LogMismatch(
            f"{agent} on {topic.name}: the topic has {log_bounds.partitions} partitions, the "
            f"catalogue says {topic.partitions}, so keys are not where they were. Move its "
            "records to a new topic version and rebuild; never change the number in place"
        )


def check_topic(agent: str, seat: Seat, position: Position, log_bounds: LogBounds) -> None:
    """Raise `LogMismatch` unless the topic is the one that the position is of."""
    if position.topic_id != log_bounds.topic_id:
        raise LogMismatch(
            f"{agent} on {seat.name}: the topic was re-created (id {log_bounds.topic_id}, the read "
            f"model was folded from {position.topic_id}), so its offsets mean other records. "
            f"{_remedy(agent)}"
        )


def _remedy(agent: str) -> str:
    return f"Check the topic, then rebuild the read model: headrace rebuild {agent}"


def check_against_log(
    agent: str, seat: Seat, position: Position | None, log_bounds: LogBounds, *, ruled: bool = False
) -> None:
    """Raise `LogMismatch` unless the log can continue this position. A topic that is `ruled` by a
    reader rule is read from its very start, or with the rule's state (rules A3, B7).
    """
    if ruled:
        _check_rule(agent, seat, position, log_bounds)
    if position is None:
        return
    check_topic(agent, seat, position, log_bounds)
    where, remedy = f"{agent} on {seat.name}", _remedy(agent)
    if position.next_offset > log_bounds.end:
        raise LogMismatch(
            f"{where}: folded up to offset {position.next_offset}, but the log ends at "
            f"{log_bounds.end}: its tail was lost. {remedy}"
        )
    if position.low_offset < log_bounds.start:
        raise LogMismatch(
            f"{where}: needs the log from offset {position.low_offset}, but retention has deleted "
            f"it up to {log_bounds.start}. {remedy}"
        )


def _check_rule(agent: str, seat: Seat, position: Position | None, log_bounds: LogBounds) -> None:
    where = f"{agent} on {seat.name}"
    if position is None and log_bounds.start > 0:
        raise LogMismatch(
            f"{where}: must be read from offset 0, but retention has deleted it up to "
            f"{log_bounds.start}: which of the records after it count can no longer be told. Keep "
            "such a topic whole (retention_ms = -1); a derived one can be derived again, as a new "
            "topic"
        )
    if position is not None and position.next_offset > 0 and position.filter_next is None:
        raise LogMismatch(
            f"{where}: was folded up to offset {position.next_offset} without the reader rule that "
            f"the topic has now. Rebuild the read model: headrace rebuild {agent}"
        )
