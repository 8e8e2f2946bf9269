"""The public keys that tokens are checked with: a JWK set from a file or from a URL.

Which algorithm a key is for is decided here, by the key, never by the token: RSA → RS256,
P-256 → ES256, Ed25519 → Ed25519 or its older name EdDSA (RFC 9864). A set with
anything else (a symmetric key above all) is refused as a whole. Keys rotate without a restart: a
file is read again when it changed, a URL when a token names a key id that is not known, at most
every `REFRESH_S` seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

REFRESH_S = 10.0
FETCH_TIMEOUT_S = 5.0
RSA_BITS_MIN = 2_048
SET_BYTES_MAX = 256_000

log = structlog.get_logger(__name__)


class BadKeySet(ValueError):
    """A JWK set that tokens must not be checked with."""


class Keys(Protocol):
    """Finds the key with an id."""

    async def find(self, kid: str) -> Key | None: ...


def parse(raw: bytes | str) -> dict[str, Key]:
    """Keys by id. Raises `BadKeySet`."""
    if len(raw) > SET_BYTES_MAX:
        raise BadKeySet("the set is too large")
    try:
        keys = KeySet.import_key_set(json.loads(raw)).keys
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadKeySet(f"not a JWK set: {type(error).__name__}") from None
    found: dict[str, Key] = {}
    for key in keys:
        algorithms_of(key)
        if not key.kid or key.kid in found:
            raise BadKeySet(f"key id {key.kid!r} is missing or there twice")
        found[key.kid] = key
    return found


def algorithms_of(key: Key) -> tuple[str, ...]:
    """The algorithm a key is used with, by its names. Raises `BadKeySet` for others."""
    match key:
        case RSAKey() if key.public_key.key_size >= RSA_BITS_MIN:
            return ("RS256",)
        case ECKey() if key.curve_name == "P-256":
            return ("ES256",)
        case OKPKey() if key.get("crv") == "Ed25519":
            return ("Ed25519", "EdDSA")
        case _:
            raise BadKeySet(f"key {key.kid!r}: only RSA (2048 bits or more), P-256 and Ed25519")


@dataclass
class KeyFile:
    """Keys of a file that may not exist yet; read again when it changes."""

    path: Path
    _stamp: tuple[int, int] = (0, 0)
    _keys: dict[str, Key] = field(default_factory=dict)

    async def find(self, kid: str) -> Key | None:
        """The key, from the file as it is now. A file that became bad keeps the old keys."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._keys = parse(self.path.read_bytes())
            except BadKeySet as error:
                log.warning("key file refused", path=str(self.path), error=str(error))
        return self._keys.get(kid)


class KeyUrl:
    """Keys of an identity provider. While it does not answer, the last keys stay in use."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        if not url.startswith("https://"):
            raise ValueError("keys_url must be https: whoever sends the keys decides who may enter")
        self._url = url
        self._client = client
        self._keys: dict[str, Key] = {}
        self._asked_s = float("-inf")
        self._lock = asyncio.Lock()

    async def find(self, kid: str) -> Key | None:
        """The key; an unknown id makes one refresh, not one for each request."""
        if kid not in self._keys:
            async with self._lock:
                if kid not in self._keys and time.monotonic() - self._asked_s >= REFRESH_S:
                    self._asked_s = time.monotonic()
                    await self._refresh()
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        try:
            response = await self._client.get(self._url)
            response.raise_for_status()
            self._keys = parse(response.content)
        except (httpx.HTTPError, BadKeySet) as error:
            log.warning("key set not refreshed", url=self._url, error=str(error))


def public_set(keys: list[Key]) -> dict[str, Any]:
    """The JWK set document with the public halves."""
    return {"keys": [key.as_dict(private=False) for key in keys]}
