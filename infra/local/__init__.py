"""The local cluster: real servers, started without Docker or root where there is neither.

    import infra.local
    settings = infra.local.up(["kafka", "redis"])

`headrace up` is the same from the command line. The parts are in `infra.local.parts`, one file
each; `infra.local.stack` orders them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from infra.error import StackError
from infra.local.parts import DEFAULT, PARTS
from infra.local.stack import Stack, State
from streams.runtime.settings import Settings

__all__ = ["DEFAULT", "PARTS", "Stack", "StackError", "State", "down", "status", "up"]


def up(parts: Sequence[str] = DEFAULT, console: Console | None = None) -> Settings:
    """Make these parts ready and return all addresses; see `Stack.up`."""
    return _stack(console).up(parts)


def down(parts: Sequence[str] | None = None, console: Console | None = None) -> list[str]:
    """Stop these parts (all by default), if they are ours; return the names of those stopped."""
    return _stack(console).down(parts)


def status() -> list[State]:
    """The state of every part, asked now."""
    return Stack().status()


def _stack(console: Console | None) -> Stack:
    return Stack() if console is None else Stack(console=console)
