"""SMS and push through a provider's HTTP interface.

The interface is the common part of what providers offer: `POST <url>` with JSON, a bearer key, an
`Idempotency-Key`; 2xx with an `id`; 404 or 410 for an address that is no more; 429 with
`Retry-After`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import httpx

from connectors.notifications.message import InvalidAddress, Message, Refused, Temporary

RETRY_AFTER_MS = 1_000
"""Where a provider says 429 and not for how long."""
RETRY_AFTER_MS_MAX = 3_600_000


class HttpProvider:
    """One account at an HTTP provider of SMS or push."""

    def __init__(
        self,
        name: str,
        url: str,
        key: str,
        *,
        timeout_s: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Nothing is sent before the first message."""
        self.name = name
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"},
            timeout=timeout_s,
            transport=transport,
            follow_redirects=False,
        )
        self._url = url

    async def send(self, message: Message) -> str:
        """As `Provider.send`."""
        body = {"reference": message.id, "to": message.address, "text": message.text}
        if message.subject:
            body["title"] = message.subject
        try:
            answer = await self._client.post(
                self._url, json=body, headers={"Idempotency-Key": message.id}
            )
        except httpx.HTTPError as error:
            raise Temporary(f"{type(error).__name__}: {error}") from None
        if answer.is_success:
            return _id(answer)
        raise _error(answer)

    async def close(self) -> None:
        """As `Provider.close`."""
        await self._client.aclose()


def _id(answer: httpx.Response) -> str:
    try:
        told: Any = answer.json()
    except ValueError:
        told = None
    # It was taken, whatever the body says: to send it again would be worse than to lack its id.
    return str(told.get("id", "")) if isinstance(told, dict) else ""


def _error(answer: httpx.Response) -> Temporary | Refused:
    reason = f"{answer.status_code} {answer.text[:200]}"
    if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return Temporary(reason, after_ms=_after_ms(answer))
    if answer.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return InvalidAddress(reason)
    if answer.is_server_error or answer.status_code == HTTPStatus.REQUEST_TIMEOUT:
        return Temporary(reason)
    return Refused(reason)


def _after_ms(answer: httpx.Response) -> int:
    given = answer.headers.get("retry-after", "")
    if given.isascii() and given.isdigit():
        return min(int(given) * 1_000, RETRY_AFTER_MS_MAX)
    return RETRY_AFTER_MS
