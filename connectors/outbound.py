"""HTTP to addresses that somebody else chose (webhooks, pages to fetch), without reaching inside.

A URL may name an internal host, a name may resolve to an internal address, may do so only the
second time it is asked, and an answer may redirect to one. So the check is made where it cannot be
got round: at the connection. The name is resolved once, *every* address found must be public, and
the connection goes to the very address that was checked. Redirects are answers like any other.

Public means global by the IANA registries, minus all forms that carry an IPv4 address inside
(mapped, compatible, NAT64, 6to4, Teredo), where the check and the network might read differently.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpcore
import httpx

from streams.runtime.settings import Outbound as OutboundSettings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
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
    headers: httpx.Headers
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


class _Guard(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were checked, and to nothing else."""

    def __init__(self, allow: Sequence[Network], lookup: Resolve) -> None:
        self._allow = allow
        self._lookup = lookup
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = [ipaddress.ip_address(text) for text in await self._lookup(host, port)]
        except (OSError, UnicodeError, ValueError) as error:
            raise httpcore.ConnectError(f"{host}: {error}") from error
        refused = [one for one in found if not self._allowed(one)]
        if refused or not found:
            raise Forbidden(f"{host} is at {refused[0] if refused else 'no address'}: not public")
        failed: Exception = httpcore.ConnectError(host)
        for address in found[:ADDRESSES_MAX]:
            try:
                return await self._network.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 -- httpcore's signature
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise Forbidden("a socket of this machine")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    def _allowed(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self._allow)


class _Transport(httpx.AsyncHTTPTransport):
    """httpx's transport over a pool with our network; no proxy of the environment."""

    def __init__(self, guard: _Guard, connections_max: int, tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=connections_max,
            max_keepalive_connections=connections_max // 4,
            keepalive_expiry=5.0,
            network_backend=guard,
        )


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
        self._timeout_ms = timeout_ms
        self._bytes_max = answer_bytes_max
        self._client = httpx.AsyncClient(
            transport=_Transport(
                _Guard(allow, lookup), connections_max, tls or ssl.create_default_context()
            ),
            timeout=timeout_ms / 1_000,
            follow_redirects=False,
            trust_env=False,
            headers={"User-Agent": "Headrace", "Accept-Encoding": "identity"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

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
        request = self._request(method, url, content, headers)
        bytes_max = self._bytes_max if answer_bytes_max is None else answer_bytes_max
        try:
            async with asyncio.timeout((timeout_ms or self._timeout_ms) / 1_000):
                answer = await self._client.send(request, stream=True)
                try:
                    body = await _body(answer, bytes_max)
                finally:
                    await answer.aclose()
        except TimeoutError as error:
            raise Unreachable(f"{request.url.host}: no answer in time") from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"{request.url.host}: {reason}") from error
        return Answer(answer.status_code, answer.headers, body)

    def _request(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str] | None
    ) -> httpx.Request:
        try:
            parsed = httpx.URL(url)
            if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
                raise Forbidden("only http and https URLs with a host and without credentials")
            if parsed.port is not None and not 0 < parsed.port < 65_536:
                raise Forbidden(f"there is no port {parsed.port}")
            return self._client.build_request(method, parsed, content=content, headers=headers)
        except (httpx.InvalidURL, ValueError, TypeError) as error:
            raise Forbidden(f"not a URL to call: {error}") from error


async def _body(answer: httpx.Response, bytes_max: int) -> bytes:
    encoding: Any = answer.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise TooLarge(f"encoded as {encoding}, which was not asked for", answer.status_code)
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > bytes_max:
            raise TooLarge(f"more than {bytes_max:,} bytes", answer.status_code)
    return bytes(body)
