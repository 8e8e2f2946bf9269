"""The payment provider: what it is asked, and the three things that can come of asking.

An operation is sent under its own id as `Idempotency-Key`, so that sending it again is the same
operation. What comes back is an answer; or `NoAnswer`, after which the operation may or may not
have been done; or `NotTaken`, where it surely was not.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal, Protocol

import httpx
import msgspec

from connectors.payments.settings import PspSettings
from schemas.payments.events import ReportOperation

RETRY_AFTER_MS: Final = 1_000
RETRY_AFTER_MS_MAX: Final = 3_600_000

Status = Literal["pending", "succeeded", "failed", "reversed"]


class Asked(msgspec.Struct, frozen=True):
    """An operation as the provider is asked to do it; `amount` in minor units."""

    reference: str
    payment: str
    kind: str
    currency: str
    amount: int
    method: str


class Told(msgspec.Struct, frozen=True):
    """What the provider says of an operation: as an answer, when asked, and in webhooks."""

    reference: str
    payment: str
    status: Status
    amount: int
    currency: str
    id: str = ""
    reason: str = ""


class NoAnswer(Exception):
    """The provider may or may not have done it."""


class NotTaken(Exception):
    """The provider has not taken it. `after_ms` is when it wants to be asked again."""

    def __init__(self, reason: str, after_ms: int | None = None) -> None:
        super().__init__(reason)
        self.after_ms = after_ms


class Provider(Protocol):
    """What a reactor asks."""

    async def perform(self, asked: Asked) -> Told:
        """Do an operation. Raises `NoAnswer` or `NotTaken`."""
        ...

    async def look(self, reference: str) -> Told | None:
        """How an operation stands; None: it was never received. Raises as `perform`."""
        ...


def report_of(told: Told, source: str) -> ReportOperation | None:
    """The command that tells a book; None for an operation that is still on its way."""
    if told.status == "pending":
        return None
    return ReportOperation(
        book=told.payment.partition(".")[0],
        payment_id=told.payment,
        operation_id=told.reference,
        status=told.status,
        amount=told.amount,
        currency=told.currency,
        psp_reference=told.id,
        reason=told.reason,
        source=source,
    )


_TOLD = msgspec.json.Decoder(Told)


def told(body: bytes) -> Told:
    """What a body says; raises `ValueError` for what is no report of an operation."""
    try:
        return _TOLD.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None


class HttpProvider:
    """A provider with an HTTP interface: `POST /operations`, `GET /operations/{reference}`."""

    def __init__(
        self, settings: PspSettings, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Nothing is sent before the first operation."""
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            headers={"Authorization": f"Bearer {settings.key.get_secret_value()}"},
            timeout=settings.timeout_ms / 1_000,
            transport=transport,
            follow_redirects=False,
        )

    async def perform(self, asked: Asked) -> Told:
        """As `Provider.perform`."""
        headers = {"Idempotency-Key": asked.reference, "Content-Type": "application/json"}
        answer = await self._ask("POST", "/operations", msgspec.json.encode(asked), headers)
        return _read(answer)

    async def look(self, reference: str) -> Told | None:
        """As `Provider.look`."""
        answer = await self._ask("GET", f"/operations/{reference}")
        return None if answer.status_code == HTTPStatus.NOT_FOUND else _read(answer)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.aclose()

    async def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        try:
            return await self._client.request(method, path, content=body, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise NotTaken(type(error).__name__) from None
        except httpx.HTTPError as error:
            raise NoAnswer(type(error).__name__) from None


def _read(answer: httpx.Response) -> Told:
    if answer.is_success:
        try:
            return told(answer.content)
        except ValueError as error:
            raise NoAnswer(f"an answer that says nothing: {error}") from None
    reason = f"status {answer.status_code}"
    if answer.status_code in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        raise NotTaken(reason, _after_ms(answer))
    if answer.is_server_error or answer.status_code == HTTPStatus.REQUEST_TIMEOUT:
        raise NoAnswer(reason)
    # Another 4xx says that we ask wrongly or may not ask: nothing was done, and a person must look.
    raise NotTaken(f"{reason} {answer.text[:200]}")


def _after_ms(answer: httpx.Response) -> int:
    text = answer.headers.get("Retry-After", "")
    if not text.isascii() or not text.isdigit() or len(text) > len(str(RETRY_AFTER_MS_MAX)):
        return RETRY_AFTER_MS
    return min(int(text) * 1_000, RETRY_AFTER_MS_MAX)
