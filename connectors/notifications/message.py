"""What a provider is given, and how it says no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """One message to one address. `id` is the same at every try: providers that can are given it
    as idempotency key, and a duplicate at one that cannot carries it.
    """

    id: str
    channel: str
    address: str
    subject: str
    text: str
    html: str = ""


class SendError(Exception):
    """Base of what a provider raises.

    SendError
    ├── Temporary         no answer, busy or broken: another provider, or later
    │   └── HeldBack         nobody was called: limits are reached, or all are left alone
    └── Refused           understood, and will never be sent
        └── InvalidAddress   nobody is there: the address is of no more use
    """


class Temporary(SendError):
    """It may work later, or elsewhere. `after_ms` is what the provider asked for."""

    def __init__(self, reason: str, *, after_ms: int | None = None) -> None:
        super().__init__(reason)
        self.after_ms = after_ms


class HeldBack(Temporary):
    """Nobody was called, so it was no try."""


class Refused(SendError):
    """The provider will never send this."""


class InvalidAddress(Refused):
    """There is no such mailbox, number or device."""


class Provider(Protocol):
    """One account at one provider, for one channel."""

    name: str

    async def send(self, message: Message) -> str:
        """Hand a message over; returns the provider's id of it. Raises `SendError`. A time-out is
        `Temporary`, although the message may have been taken.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...
