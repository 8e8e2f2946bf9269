"""Reading a paste, without HTTP: from the table, and the object store behind it.

A paste past its time is not read, whatever has or has not been decided about it. One that can be
read once is fetched first and claimed last, so a store that does not answer burns nothing, and of
all who have it in hand only the one whose claim came first may show it. The others have fetched it
in vain. Should the server die with the claim in hand, nobody has read it: at most once is what
"once" can mean over a network.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from connectors.asking import Asks, Refused
from connectors.pastes.passwords import Passwords
from schemas.pastes.events import COMMANDS, ClaimPaste
from schemas.pastes.locks import fits


class Paste(Protocol):
    """What is asked of a paste; `sinks.pastes.reader.Paste` is one."""

    @property
    def id(self) -> str: ...
    @property
    def ended(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def visibility(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def burn(self) -> bool: ...
    @property
    def lock(self) -> str: ...
    @property
    def object(self) -> str: ...
    @property
    def expires_ms(self) -> int | None: ...


Found_co = TypeVar("Found_co", bound=Paste, covariant=True)
Known = TypeVar("Known", bound=Paste)


class Table(Protocol[Found_co]):
    """The table of pastes. Raises `SinkError`."""

    async def paste(self, name: str) -> Found_co | None:
        """A paste, also one that has ended; None where there never was one."""
        ...

    async def content(self, sha256: str) -> str | None:
        """A small content; None where there is none."""
        ...


class Objects(Protocol):
    """The object store. Raises `SinkError`."""

    async def get(self, name: str) -> bytes | None:
        """A content; None where there is none."""
        ...


class Absent(Exception):
    """There is no such paste, or not for who asks."""


class Gone(Exception):
    """There was; `how` says what ended it."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class WrongPassword(Exception):
    """The paste has a password, and it was not given, or another was."""


class NotYet(Exception):
    """The table and the store do not agree yet: later."""


@dataclass(frozen=True, slots=True)
class Read(Generic[Known]):
    """A paste and its content in UTF-8; `left_ms` is how long it can be read, None: for ever."""

    paste: Known
    content: bytes
    left_ms: int | None


class Reading(Generic[Known]):
    """Reads pastes for whoever asks. One per process."""

    def __init__(
        self,
        table: Table[Known],
        objects: Objects,
        log: Asks,
        passwords: Passwords,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._table = table
        self._objects = objects
        self._log = log
        self._passwords = passwords
        self._now_ms = now_ms

    async def known(self, name: str, viewer: str) -> Known:
        """The paste as the table has it, ended or not. `viewer` is empty for somebody unknown.
        Raises `Absent`.
        """
        paste = await self._table.paste(name)
        if paste is None or (paste.visibility == "private" and paste.owner != viewer):
            raise Absent
        return paste

    async def read(self, name: str, viewer: str, password: str) -> Read[Known]:
        """The paste and its content. Raises `Absent`, `Gone`, `WrongPassword`, `NotYet`, and, for
        one that is read once, `NoVerdict`.
        """
        paste = await self.known(name, viewer)
        self._left_ms(paste)
        proof = await self._passwords.proof(paste.lock, password) if password else ""
        if not fits(paste.lock, proof):
            raise WrongPassword
        content = await self._content(paste)
        if content is None:
            # Ended in between; or the table is behind the object store, which it soon is not.
            self._left_ms(await self.known(name, viewer))
            raise NotYet
        if paste.burn:
            await self._claim(paste, proof)
        return Read(paste, content, self._left_ms(paste))

    def _left_ms(self, paste: Paste) -> int | None:
        """How long it can be read; None: for ever. Raises `Gone`."""
        if paste.ended:
            raise Gone(paste.ended)
        left_ms = None if paste.expires_ms is None else paste.expires_ms - self._now_ms()
        if left_ms is not None and left_ms <= 0:
            raise Gone("expired")
        return left_ms

    async def _content(self, paste: Paste) -> bytes | None:
        if paste.object:
            return await self._objects.get(paste.object)
        content = await self._table.content(paste.sha256)
        return None if content is None else content.encode()

    async def _claim(self, paste: Paste, proof: str) -> None:
        try:
            await self._log.ask(COMMANDS, ClaimPaste(paste.id, proof))
        except Refused as refusal:
            if refusal.code == "gone":
                raise Gone("burned") from refusal
            raise
