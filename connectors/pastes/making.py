"""A new paste: its content stored first, then the command that makes it."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from connectors.pastes.passwords import Passwords
from schemas.pastes.contents import CONTENT_BYTES_MAX, ID_CHARS, object_name
from schemas.pastes.events import COMMANDS, CreatePaste, Visibility
from schemas.pastes.locks import OPEN
from streams.runtime.kafka import partition_of
from streams.runtime.permutation import ALPHABET


class Objects(Protocol):
    """The object store. Raises `SinkError`."""

    async def put(self, name: str, content: bytes) -> None:
        """Keep a content; it is durable when this returns."""
        ...


class TooLarge(ValueError):
    """The content has more than `CONTENT_BYTES_MAX` bytes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A paste that somebody wants to make."""

    content: str
    owner: str
    visibility: Visibility
    language: str
    ttl_ms: int | None
    burn: bool
    password: str


class Making:
    """Stores contents. One per process.

    Small contents go into the event; those that are to vanish by themselves never do, since the
    log keeps what it has. A server that dies between the two steps leaves an object without a
    paste, and so does a paste that is refused: `headrace pastes reconcile` finds them.
    """

    def __init__(
        self,
        objects: Objects,
        passwords: Passwords,
        inline_bytes_max: int,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._objects = objects
        self._passwords = passwords
        self._inline_max = inline_bytes_max
        self._now_ms = now_ms

    async def command(self, wanted: Wanted) -> CreatePaste:
        """The command for a paste whose content is stored. Raises `TooLarge`, `SinkError`."""
        content = wanted.content.encode()
        if len(content) > CONTENT_BYTES_MAX:
            raise TooLarge
        sha256 = (await asyncio.to_thread(hashlib.sha256, content)).hexdigest()
        inline = len(content) <= self._inline_max and wanted.ttl_ms is None and not wanted.burn
        lock = await self._passwords.lock(wanted.password) if wanted.password else OPEN
        name = "" if inline else object_name(sha256, self._now_ms(), secrets.token_hex(8))
        if name:
            await self._objects.put(name, content)
        return CreatePaste(
            id=sha256,
            paste=new_id(sha256),
            owner=wanted.owner,
            visibility=wanted.visibility,
            language=wanted.language,
            size=len(content),
            ttl_ms=wanted.ttl_ms,
            burn=wanted.burn,
            lock=lock,
            object=name,
            content=wanted.content if inline else None,
        )


def new_id(sha256: str) -> str:
    """A random id that lies in the partition of a content: one try in `partitions` does."""
    partitions = COMMANDS.partitions
    own = partition_of(sha256, partitions)
    while True:
        made = "".join(secrets.choice(ALPHABET) for _ in range(ID_CHARS))
        if partition_of(made, partitions) == own:
            return made
