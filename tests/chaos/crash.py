"""Where a decider's process can be made to die: `kill -9` by its own hand, between two steps.

A worker that is started with `--dies POINT` kills itself when it gets there with a command whose
idempotency key ends with the `mark` of that point. So every moment between the arrival of a command
and the reply to it is met exactly, not by chance.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from streams.runtime.decider.answering import Answering
from streams.runtime.decider.outgoing import Outgoing
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.wire import IDEMPOTENCY_KEY

_POINT = [""]

Record = tuple[Any, ...]
"""Nonce, key, value and headers."""
Append = Callable[..., None]


def mark(point: str) -> str:
    """The end of the keys of commands that are deadly there."""
    return f"!{point}"


def die() -> NoReturn:
    """As `kill -9` from outside: nothing is flushed, nothing is closed."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still here")


def _marked(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    return any(
        name == IDEMPOTENCY_KEY and _deadly((value or b"").decode()) for name, value in headers
    )


def _deadly(key: str) -> bool:
    return key.endswith(mark(_POINT[0]))


def _decided() -> None:
    """Decided, and folded ahead of the log; not sent."""

    def dies(_: Outgoing, append: Append, record: Record) -> None:
        if _marked(record[-1]):
            die()
        append(*record)

    _instead_of_append(dies)


def _appended() -> None:
    """The event is in the log; its writer has not read it back."""

    def dies(out: Outgoing, append: Append, record: Record) -> None:
        append(*record)
        if _marked(record[-1]):
            out.flush()
            assert out._sender.producer.flush(30) == 0
            die()

    _instead_of_append(dies)


def _instead_of_append(does: Callable[[Outgoing, Append, Record], None]) -> None:
    to = Outgoing.to

    def instead(self: Outgoing, partition: int) -> Append:
        append = to(self, partition)
        return lambda *record: does(self, append, record)

    Outgoing.to = instead  # type: ignore[method-assign]


def _read_back() -> None:
    """Read back; the verdict is not even made."""
    committed = Owner._committed

    def dies(self: Owner, done: Any, envelope: Any, offset: int) -> None:
        if _deadly(envelope.idempotency_key):
            die()
        committed(self, done, envelope, offset)

    Owner._committed = dies  # type: ignore[method-assign]


def _told() -> None:
    """The verdict waits to be published."""
    publish = Answering._publish

    def dies(self: Answering, batch: list[Any]) -> None:
        if armed:
            die()
        publish(self, batch)

    armed = _arm()
    Answering._publish = dies  # type: ignore[method-assign]


def _published() -> None:
    """The verdict is published; no position, snapshot or commit says so."""
    publish = Answering._publish

    def dies(self: Answering, batch: list[Any]) -> None:
        publish(self, batch)
        if armed:
            die()

    armed = _arm()
    Answering._publish = dies  # type: ignore[method-assign]


def _arm() -> list[bool]:
    """Becomes true once a marked command is read back."""
    armed: list[bool] = []
    committed = Owner._committed

    def notes(self: Owner, done: Any, envelope: Any, offset: int) -> None:
        if _deadly(envelope.idempotency_key):
            armed.append(True)
        committed(self, done, envelope, offset)

    Owner._committed = notes  # type: ignore[method-assign]
    return armed


POINTS: dict[str, Callable[[], None]] = {
    "decided": _decided,
    "appended": _appended,
    "read-back": _read_back,
    "told": _told,
    "published": _published,
}
"""By the last step that was done."""


def install(point: str) -> None:
    """Make this process die there."""
    _POINT[0] = point
    POINTS[point]()
