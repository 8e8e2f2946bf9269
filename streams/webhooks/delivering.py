"""The reactor that posts: one delivery, one call, one report of how it went.

Settings, secrets and whether the endpoint is enabled are those at the time of the call, and never
older than when the delivery was decided. Only 2xx is a success; a redirect is an answer like any
other and is not followed; 410 ends the endpoint (Standard Webhooks). Where a call may lead is
checked at the connection (`connectors.outbound`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from connectors import webhooks as standard
from connectors.outbound import Answer, Forbidden, Outbound, OutboundError, TooLarge
from schemas.webhooks.events import (
    AttemptStatus,
    DeliveryRequested,
    RecoveryStepped,
    ReportAttempt,
    ResendMessages,
    ResentMessage,
)
from sinks.open import open_cassandra_reader
from sinks.webhooks import BLOCK, WEBHOOKS
from sinks.webhooks.reader import Endpoint, Message, WebhooksReader
from streams.runtime.reactor.limits import TokenBucket
from streams.runtime.reactor.rules import Retry, Route, Task
from streams.runtime.settings import Settings

T = TypeVar("T")

TIMEOUT_MS = 15_000
IN_FLIGHT_MAX = 1_024
"""Calls at once: many times what one tenant may have, so that a few cannot take it all."""
ANSWER_BYTES_MAX = 65_536
KNOWN_MS = 1_000
"""How long an endpoint's settings are believed: a new secret or a switch-off takes so long."""
WAIT_MS = 5_000
"""How long to wait here for the read model to have what a delivery needs."""
LOOK_MS = 50
RETRY_AFTER_MS_MAX = 36_000_000
DETAIL_CHARS_MAX = 300
GONE = 410
ENDPOINTS_MAX = 50_000


class Store(Protocol):
    """What is read; `sinks.webhooks.reader.WebhooksReader` answers."""

    async def endpoint(self, tenant_id: str, endpoint_id: str) -> Endpoint | None: ...
    async def message(self, tenant_id: str, sequence: int) -> Message | None: ...
    async def newest(self, tenant_id: str) -> int: ...
    async def missed(
        self, tenant_id: str, endpoint: Endpoint, since_ms: int, first: int, stop: int
    ) -> list[Message]: ...


class Posts(Protocol):
    """How messages are posted; `connectors.outbound.Outbound` does."""

    async def request(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str]
    ) -> Answer: ...


@dataclass(frozen=True)
class _Known:
    endpoint: Endpoint
    until_ms: int


@dataclass(frozen=True)
class _Sent:
    """What came back: the status, how long it took, how long we are asked to wait."""

    status: int
    took_ms: int
    retry_after_ms: int | None = None

    @property
    def delivered(self) -> bool:
        return 200 <= self.status < 300


class Delivering:
    """`Handler` of deliveries and of the steps of recoveries."""

    def __init__(
        self,
        store: Store,
        posts: Posts,
        now_ms: Callable[[], int],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._posts = posts
        self._now_ms = now_ms
        self._sleep = sleep
        self._known: dict[tuple[str, str], _Known] = {}
        self._looking: dict[tuple[str, str], asyncio.Future[Endpoint | None]] = {}
        self._rates: dict[tuple[str, str, int], TokenBucket] = {}

    def route(self, record: str, row: DeliveryRequested | RecoveryStepped) -> Route | None:
        """An endpoint has its own limit and breaker, a tenant its own share."""
        name = f"{row.tenant_id}/{row.endpoint_id}"
        if isinstance(row, RecoveryStepped):
            return Route(target=f"recovery:{name}")
        return Route(tenant=row.tenant_id, target=name, provider=name)

    async def act(self, task: Task) -> ReportAttempt | ResendMessages | None:
        """Post one message, or find the next ones of a recovery. Raises `Retry`."""
        if isinstance(task.row, RecoveryStepped):
            return await self._recover(task.row)
        row: DeliveryRequested = task.row
        endpoint = await self._endpoint(row.tenant_id, row.endpoint_id, row.revision)
        if endpoint.disabled:
            return _report(task, "skipped", final=True, detail=f"endpoint is {endpoint.disabled}")
        self._take(row, endpoint)
        body = (row.body if row.body is not None else await self._body(row)).encode()
        try:
            sent = await self._post(row.message_id, endpoint, body)
        except Forbidden as error:
            return _report(task, "failed", final=True, detail=str(error))
        except OutboundError as error:
            failed = _report(task, "failed", final=False, detail=str(error))
            raise Retry(failed.detail, outcome=failed) from None
        if sent.delivered:
            return _report(task, "delivered", final=True, sent=sent)
        if sent.status == GONE:
            return _report(task, "gone", final=True, sent=sent)
        failed = _report(task, "failed", final=False, sent=sent)
        raise Retry(failed.detail, after_ms=sent.retry_after_ms, outcome=failed)

    def gave_up(self, task: Task, reason: str) -> ReportAttempt | None:
        """The outcome after the last try. A step of a recovery has none: its dead letter is what
        there is to see.
        """
        if isinstance(task.row, RecoveryStepped):
            return None
        return _report(task, "failed", final=True, detail=reason)

    async def _post(self, id_: str, endpoint: Endpoint, body: bytes) -> _Sent:
        """Post it, signed with every secret in use. Raises `OutboundError`."""
        now_ms = self._now_ms()
        keys = [
            standard.key_of(secret)
            for secret, expires_ms in endpoint.secrets
            if expires_ms is None or expires_ms > now_ms
        ]
        headers = standard.signed(keys, id_, now_ms // 1_000, body)
        headers["content-type"] = "application/json"
        try:
            answer = await self._posts.request("POST", endpoint.url, content=body, headers=headers)
        except TooLarge as error:  # nobody reads the answer: its status is what counts
            return _Sent(error.status, self._now_ms() - now_ms)
        return _Sent(answer.status, self._now_ms() - now_ms, _retry_after_ms(answer))

    async def _endpoint(self, tenant_id: str, endpoint_id: str, revision: int) -> Endpoint:
        """The endpoint, not older than `revision`. Raises `Retry`."""
        key, now_ms = (tenant_id, endpoint_id), self._now_ms()
        known = self._known.get(key)
        if known and known.until_ms > now_ms and known.endpoint.revision >= revision:
            return known.endpoint

        async def look() -> Endpoint | None:
            found = await self._look(key)
            return found if found and found.revision >= revision else None

        endpoint = await self._awaited(look, f"endpoint {endpoint_id}")
        while len(self._known) >= ENDPOINTS_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = _Known(endpoint, now_ms + KNOWN_MS)
        return endpoint

    async def _look(self, key: tuple[str, str]) -> Endpoint | None:
        """The endpoint as it is stored; who asks at once looks once."""
        looking = self._looking.get(key)
        if looking is None:
            looking = asyncio.ensure_future(self._store.endpoint(*key))
            self._looking[key] = looking
            looking.add_done_callback(lambda _: self._looking.pop(key))
        return await asyncio.shield(looking)

    async def _body(self, row: DeliveryRequested) -> str:
        async def look() -> Message | None:
            return await self._store.message(row.tenant_id, row.sequence)

        return (await self._awaited(look, f"message {row.message_id}")).body

    async def _awaited(self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        """What the read model is about to have. Raises `Retry`, which costs no try."""
        for _ in range(WAIT_MS // LOOK_MS):
            found = await look()
            if found is not None:
                return found
            await self._sleep(LOOK_MS / 1_000)
        raise Retry(f"{what} is not in the read model yet", counts=False)

    def _take(self, row: DeliveryRequested, endpoint: Endpoint) -> None:
        """Keep to the endpoint's rate. Raises `Retry`, which costs no try."""
        if not endpoint.rate_per_s:
            return
        name = (row.tenant_id, row.endpoint_id, endpoint.rate_per_s)
        if len(self._rates) > ENDPOINTS_MAX:
            now = self._now_ms()
            self._rates = {key: one for key, one in self._rates.items() if not one.full(now)}
        rate = endpoint.rate_per_s
        bucket = self._rates.setdefault(name, TokenBucket(rate, rate))
        wait_ms = bucket.wait_ms(self._now_ms())
        if wait_ms:
            raise Retry("the endpoint's rate", after_ms=round(wait_ms), counts=False)
        bucket.take(self._now_ms())

    async def _recover(self, row: RecoveryStepped) -> ResendMessages | None:
        """The next block of messages that the endpoint has not got."""
        endpoint = await self._endpoint(row.tenant_id, row.endpoint_id, row.revision)
        if endpoint.disabled:
            return None

        async def folded() -> int | None:
            newest = await self._store.newest(row.tenant_id)
            return newest if newest >= row.until_sequence - 1 else None

        await self._awaited(folded, "the last message")
        stop = min(row.until_sequence, (row.next_sequence // BLOCK + 1) * BLOCK)
        found = await self._store.missed(
            row.tenant_id, endpoint, row.since, row.next_sequence, stop
        )
        messages = [
            ResentMessage(
                message_id=one.message_id,
                sequence=one.sequence,
                event_type=one.event_type,
                order_key=one.order_key,
            )
            for one in found
        ]
        return ResendMessages(
            row.tenant_id,
            row.endpoint_id,
            row.request_id,
            messages,
            row.since,
            stop,
            row.until_sequence,
        )


def _report(
    task: Task, status: AttemptStatus, *, final: bool, sent: _Sent | None = None, detail: str = ""
) -> ReportAttempt:
    row: DeliveryRequested = task.row
    if sent and not sent.delivered:
        detail = f"HTTP {sent.status}"
    return ReportAttempt(
        tenant_id=row.tenant_id,
        endpoint_id=row.endpoint_id,
        delivery_id=row.delivery_id,
        message_id=row.message_id,
        sequence=row.sequence,
        order_key=row.order_key,
        attempt=task.attempt,
        status=status,
        final=final,
        http_status=sent.status if sent else 0,
        detail=detail[:DETAIL_CHARS_MAX],
        duration_ms=sent.took_ms if sent else 0,
    )


def _retry_after_ms(answer: Answer) -> int | None:
    """What a receiver that is busy asks for, in whole seconds (RFC 9110, 10.2.3)."""
    asked = answer.headers.get("Retry-After", "")
    if answer.status not in (429, 503) or not (asked.isascii() and asked.isdigit()):
        return None
    return min(int(asked[:9]) * 1_000, RETRY_AFTER_MS_MAX)


@asynccontextmanager
async def open_delivering(settings: Settings) -> AsyncIterator[Delivering]:
    """The handler over the read model and the network."""
    async with AsyncExitStack() as opened:
        store = WebhooksReader(open_cassandra_reader(WEBHOOKS, settings))
        opened.push_async_callback(store.close)
        posts = await opened.enter_async_context(
            Outbound(
                settings.outbound,
                timeout_ms=TIMEOUT_MS,
                answer_bytes_max=ANSWER_BYTES_MAX,
                connections_max=IN_FLIGHT_MAX,
            )
        )
        yield Delivering(store, posts, wall_ms)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
