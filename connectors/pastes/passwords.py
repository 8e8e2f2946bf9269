"""Passwords of pastes, at the edge: what is slow on purpose, away from the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from typing import Final

from schemas.pastes.locks import lock, salt_of

CHARS_MAX: Final = 1_024
_COST: Final = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 * 2**20, "dklen": 32}
"""16 MiB and some 40 ms a password (RFC 7914 section 2)."""


class Passwords:
    """Turns passwords into locks and proofs, a few at a time."""

    def __init__(self, at_once: int = 2) -> None:
        self._free = asyncio.Semaphore(at_once)

    async def lock(self, password: str) -> str:
        """A new lock that only this password opens."""
        salt = secrets.token_hex(16)
        return lock(salt, await self._proof(password, salt))

    async def proof(self, lock: str, password: str) -> str:
        """What the password leads to at a lock, whether it fits or not; empty without a lock."""
        return await self._proof(password, salt_of(lock)) if lock else ""

    async def _proof(self, password: str, salt: str) -> str:
        raw, salted = password.encode(), bytes.fromhex(salt)
        async with self._free:
            derived = await asyncio.to_thread(hashlib.scrypt, raw, salt=salted, **_COST)
        return derived.hex()
