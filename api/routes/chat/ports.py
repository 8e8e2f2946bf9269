"""What the hub needs of the world; tests have worlds of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from api.positions import AppliedSource
from sinks.chat.reader import Conversation, Entry, Mark
from streams.runtime.position import Position


class History(AppliedSource, Protocol):
    """What is asked of the read model; `sinks.chat.reader` answers."""

    async def positions(self) -> Mapping[int, Position]: ...
    async def conversation(self, conversation_id: str) -> Conversation | None: ...
    async def entries(self, conversation_id: str, after: int, limit: int) -> Sequence[Entry]: ...
    async def marks(self, conversation_id: str) -> Sequence[Mark]: ...


class Sessions(Protocol):
    """Where heartbeats go; `sinks.chat.presence` takes them."""

    async def heard(self, sessions: Sequence[tuple[str, str]], server: str) -> None: ...
    async def left(self, sessions: Sequence[tuple[str, str]]) -> None: ...


class Follows(Protocol):
    """The log as it grows; `connectors.tail` follows it."""

    def start(self, positions: Mapping[int, Position]) -> dict[int, int]: ...
    async def stop(self) -> None: ...


class Tells(Protocol):
    """Where it is told that somebody writes; `connectors.chat.typing` tells it."""

    async def tell(self, conversation_id: str, user: str) -> None: ...
