"""HTTP to addresses that somebody else chose (webhooks, pages to fetch), without reaching inside.

A URL may name an internal host, a name may resolve to an internal address, may do so only the
second time it is asked, and an answer may redirect to one. So the check is made where it cannot be
got round: at the connection. A name is resolved once for it, *every* address found must be public,
and a socket is made for an address that was checked and for no other. Redirects are answers like
any other.

Public means global by the IANA registries, minus all forms that carry an IPv4 address inside
(mapped, compatible, NAT64, 6to4, Teredo), where the check and the network might read differently.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    InvalidURL,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from streams.runtime.settings import Outbound as OutboundSettings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
AddrInfo = tuple[Any, Any, int, str, tuple[Any, ...]]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

_NEVER: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.88.99.0/24",  # 6to4 relays
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
    )
)
_UNICAST6 = ipaddress.ip_network("2000::/3")
ADDRESSES_MAX = 3
"""Addresses of a name that are tried."""
KEEPALIVE_S = 3.0
"""Less than the 5 s after which some servers (Node's) close an idle connection: a request that
meets the closing is lost.
"""


class OutboundError(Exception):
    """Base of what a request raises.

    OutboundError
    ├── Forbidden    the URL is none we call: never try again
    ├── Unreachable  no answer: it may be there later
    └── TooLarge     the answer is larger than allowed, or encoded
    """


class Forbidden(OutboundError):
    """Not http(s), with credentials in it, or at an address that is not public."""


class Unreachable(OutboundError):
    """No connection, no answer in time, or a broken one."""


class TooLarge(OutboundError):
    """More bytes than allowed, or compressed though that was not asked for. `status` is the
    answer's: it came before its body.
    """

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """An answer as it came; redirects are not followed."""

    status: int
    headers: Mapping[str, str]
    """By name, in any case."""
    body: bytes


def is_public(address: Address) -> bool:
    """Whether an address is one that a stranger's URL may lead to."""
    if any(address in network for network in _NEVER) or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST6:
        return False
    return address.is_global


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, by the system's resolver, in its order. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


class _Guard(AbstractResolver):
    """Resolves names to addresses that may be called, and makes sockets to no other."""

    def __init__(self, allow: Sequence[Network], lookup: Resolve) -> None:
        self._allow = allow
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The first addresses of a name, if all may be called; `Forbidden` or `OSError` else."""
        try:
            found = list(await self._lookup(host, port))
            refused = [text for text in found if not self._allowed(text)]
        except (UnicodeError, ValueError) as error:
            raise OSError(f"{host}: {error}") from error
        if refused or not found:
            raise Forbidden(f"{host} is at {refused[0] if refused else 'no address'}: not public")
        return [_resolved(host, text, port) for text in found[:ADDRESSES_MAX]]

    async def close(self) -> None:
        """Nothing is held."""

    def socket(self, place: AddrInfo) -> socket.socket:
        """A socket to connect to a place with; also of addresses that stand in the URL."""
        family, kind, protocol, _, address = place
        if not self._allowed(str(address[0])):
            raise Forbidden(f"{address[0]}: not public")
        return socket.socket(family, kind, protocol)

    def _allowed(self, text: str) -> bool:
        address = ipaddress.ip_address(text)
        return is_public(address) or any(address in network for network in self._allow)


def _resolved(host: str, text: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=text, port=port, family=family, proto=0, flags=flags)


class Outbound:
    """Requests to strangers. Use as an async context manager, from one event loop.

    `timeout_ms` bounds a whole request, from the look-up of the name to the last byte of the
    answer. `settings.allow` lists networks that are called though they are not public.
    """

    def __init__(
        self,
        settings: OutboundSettings,
        *,
        timeout_ms: int = 15_000,
        answer_bytes_max: int = 1_000_000,
        connections_max: int = 256,
        lookup: Resolve = resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        allow = [ipaddress.ip_network(text) for text in settings.allow]
        self._guard = _Guard(allow, lookup)
        self._timeout_ms = timeout_ms
        self._bytes_max = answer_bytes_max
        self._connections_max = connections_max
        self._tls = tls or ssl.create_default_context()

    async def __aenter__(self) -> Self:
        connector = TCPConnector(
            resolver=self._guard,
            use_dns_cache=False,
            socket_factory=self._guard.socket,
            ssl=self._tls,
            limit=self._connections_max,
            keepalive_timeout=KEEPALIVE_S,
        )
        self._session = ClientSession(
            connector=connector,
            headers={"User-Agent": "Headrace", "Accept-Encoding": "identity"},
            skip_auto_headers=("Content-Type",),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=ClientTimeout(total=None, sock_connect=None),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        answer_bytes_max: int | None = None,
    ) -> Answer:
        """One request, whatever the status of the answer. Raises `OutboundError`."""
        target = _target(url)
        _encodable(headers or {})
        bytes_max = self._bytes_max if answer_bytes_max is None else answer_bytes_max
        try:
            async with (
                asyncio.timeout((timeout_ms or self._timeout_ms) / 1_000),
                self._session.request(
                    method, target, data=content, headers=headers, allow_redirects=False
                ) as answer,
            ):
                body = await _body(answer, bytes_max)
        except TimeoutError as error:
            raise Unreachable(f"{target.host}: no answer in time") from error
        except (InvalidURL, UnicodeError) as error:
            raise Forbidden(f"not a URL to call: {error}") from error
        except (ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"{target.host}: {reason}") from error
        except ValueError as error:
            raise Forbidden(f"not a request to make: {error}") from error
        return Answer(answer.status, answer.headers, body)


def _target(url: str) -> URL:
    try:
        parsed = URL(url)
        if not url.isprintable() or parsed.scheme not in ("http", "https") or not parsed.host:
            raise Forbidden("only http and https URLs with a host")
        if parsed.user is not None or parsed.password is not None:
            raise Forbidden("no URLs with credentials")
        if not parsed.port:
            raise Forbidden(f"there is no port {parsed.port}")
    except ValueError as error:
        raise Forbidden(f"not a URL to call: {error}") from error
    return parsed


def _encodable(headers: Mapping[str, str]) -> None:
    try:
        "".join(headers.values()).encode()
    except UnicodeError as error:
        raise Forbidden(f"not a header to send: {error}") from error


async def _body(answer: ClientResponse, bytes_max: int) -> bytes:
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise TooLarge(f"encoded as {encoding}, which was not asked for", answer.status)
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > bytes_max:
            raise TooLarge(f"more than {bytes_max:,} bytes", answer.status)
    return bytes(body)
