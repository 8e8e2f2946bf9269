"""Reads of webhooks: endpoints, messages by number, deliveries, tries, what was missed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from schemas.webhooks.events import EVENTS
from sinks.readers.rows import Rows
from sinks.webhooks import (
    ATTEMPTS,
    BLOCK,
    DELIVERIES,
    ENDPOINTS,
    MESSAGES,
    NUMBERS,
    TENANTS,
)
from streams.runtime.kafka import partition_of

BLOCKS_MAX = 100


@dataclass(frozen=True)
class Endpoint:
    """An endpoint as it stands; `secrets` are (secret, end in Unix milliseconds or None)."""

    endpoint_id: str
    revision: int
    deleted: bool
    url: str
    event_types: Sequence[str]
    ordered: bool
    rate_per_s: int
    description: str
    secrets: Sequence[tuple[str, int | None]]
    disabled: str
    created_ms: int
    changed_ms: int

    def wants(self, event_type: str) -> bool:
        """Whether messages of this type go here."""
        return not self.event_types or any(
            one in ("*", event_type) or (one.endswith(".*") and event_type.startswith(one[:-1]))
            for one in self.event_types
        )


@dataclass(frozen=True)
class Message:
    """A message; `body` is what is posted."""

    sequence: int
    message_id: str
    event_type: str
    order_key: str
    body: str
    at_ms: int


@dataclass(frozen=True)
class Delivery:
    """What became of a message at an endpoint."""

    sequence: int
    message_id: str
    status: str
    attempts: int
    http_status: int
    detail: str
    at_ms: int


@dataclass(frozen=True)
class Attempt:
    """One try."""

    endpoint_id: str
    delivery_id: str
    attempt: int
    status: str
    http_status: int
    detail: str
    duration_ms: int
    at_ms: int


class WebhooksReader:
    """What is read of webhooks. One instance serves any number of concurrent requests."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def close(self) -> None:
        """Release the connections."""
        await self._rows.close()

    async def applied(self) -> Mapping[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        return await self._rows.applied(EVENTS)

    async def endpoints(self, tenant_id: str) -> list[Endpoint]:
        """A tenant's endpoints, the oldest first."""
        rows = await self._of(ENDPOINTS.name, tenant_id)
        live = rows.filter(~pl.col("deleted")).sort("created_ms", "endpoint_id")
        return [_endpoint(row) for row in live.to_dicts()]

    async def endpoint(self, tenant_id: str, endpoint_id: str) -> Endpoint | None:
        """An endpoint, also one that is deleted; None where there never was one."""
        key = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
        row = await self._rows.get(ENDPOINTS.name, key, _partition(tenant_id))
        return None if row is None else _endpoint(row)

    async def newest(self, tenant_id: str) -> int:
        """The number of the newest message; -1 before the first."""
        key = {"tenant_id": tenant_id}
        row = await self._rows.get(TENANTS.name, key, _partition(tenant_id))
        return -1 if row is None else int(row["sequence"])

    async def message(self, tenant_id: str, sequence: int) -> Message | None:
        """The message of a number."""
        key = {"tenant_id": tenant_id, "block": sequence // BLOCK, "sequence": sequence}
        row = await self._rows.get(MESSAGES.name, key, _partition(tenant_id))
        return None if row is None else _message(row)

    async def number(self, tenant_id: str, message_id: str) -> int | None:
        """The number of a message; None where there is no such message."""
        key = {"tenant_id": tenant_id, "message_id": message_id}
        row = await self._rows.get(NUMBERS.name, key, _partition(tenant_id))
        return None if row is None else int(row["sequence"])

    async def messages(self, tenant_id: str, first: int, limit: int) -> list[Message]:
        """Up to `limit` messages from the number `first` on, in their order and without gaps."""
        found: list[Message] = []
        newest = await self.newest(tenant_id)
        while first <= newest and len(found) < limit:
            stop = first + limit - len(found)
            rows = await self._slice(MESSAGES.name, {"tenant_id": tenant_id}, first, stop)
            found += [_message(row) for row in rows.to_dicts()]
            first = min(stop, (first // BLOCK + 1) * BLOCK)
        return found

    async def deliveries(
        self, tenant_id: str, endpoint_id: str, before: int | None, limit: int
    ) -> tuple[list[Delivery], int | None]:
        """Up to `limit` deliveries to an endpoint, the newest first, of numbers below `before`; and
        what to give as `before` for the next ones, None at the end. Looks through `BLOCKS_MAX`
        blocks at most, so a page may be short.
        """
        prefix = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
        stop = await self.newest(tenant_id) + 1
        stop = stop if before is None else min(before, stop)
        found: list[Delivery] = []
        for _ in range(BLOCKS_MAX):
            if stop <= 0 or len(found) >= limit:
                break
            first = (stop - 1) // BLOCK * BLOCK
            rows = await self._slice(DELIVERIES.name, prefix, first, stop)
            found += [_delivery(row) for row in reversed(rows.to_dicts())]
            stop = first
        if len(found) >= limit:
            found = found[:limit]
            stop = found[-1].sequence
        return found, stop if stop > 0 else None

    async def attempts(self, tenant_id: str, message_id: str) -> list[Attempt]:
        """All tries to deliver a message, in their order."""
        rows = await self._of(ATTEMPTS.name, tenant_id, message_id=message_id)
        names = Attempt.__dataclass_fields__
        return [Attempt(**row) for row in rows.sort("offset").select(*names).to_dicts()]

    async def missed(
        self, tenant_id: str, endpoint: Endpoint, since_ms: int, first: int, stop: int
    ) -> list[Message]:
        """The messages of `[first, stop)`, at most a block of them, since a time, that the endpoint
        wants and that are neither delivered nor on their way.
        """
        messages = await self._slice(MESSAGES.name, {"tenant_id": tenant_id}, first, stop)
        prefix = {"tenant_id": tenant_id, "endpoint_id": endpoint.endpoint_id}
        told = await self._slice(DELIVERIES.name, prefix, first, stop)
        settled = set(told.filter(pl.col("status").is_in(SETTLED))["sequence"])
        wanted = [_message(row) for row in messages.to_dicts()]
        return [
            one
            for one in wanted
            if one.at_ms >= since_ms
            and one.sequence not in settled
            and endpoint.wants(one.event_type)
        ]

    async def _slice(
        self, table: str, prefix: Mapping[str, str], first: int, stop: int
    ) -> pl.DataFrame:
        """Rows with a number of `[first, stop)` that are in the block of `first`, in order."""
        block = first // BLOCK
        limit = min(stop, (block + 1) * BLOCK) - first
        rows = await self._rows.page(
            table,
            {**prefix, "block": block},
            max(1, limit),
            after=[first - 1],
            partition=_partition(prefix["tenant_id"]),
        )
        return rows.filter(pl.col("sequence") < stop)

    async def _of(self, table: str, tenant_id: str, **rest: Any) -> pl.DataFrame:
        return await self._rows.bucket(
            table, {"tenant_id": tenant_id, **rest}, _partition(tenant_id)
        )


SETTLED = ("sending", "queued", "retrying", "delivered")
"""Deliveries that a recovery leaves alone."""


def _partition(tenant_id: str) -> int:
    return partition_of(tenant_id, EVENTS.partitions)


def _endpoint(row: Mapping[str, Any]) -> Endpoint:
    told = {name: row[name] for name in Endpoint.__dataclass_fields__}
    secrets = json.loads(told["secrets"])
    told["secrets"] = [(one["secret"], one["expires_ms"]) for one in secrets]
    return Endpoint(**told)


def _message(row: Mapping[str, Any]) -> Message:
    return Message(**{name: row[name] for name in Message.__dataclass_fields__})


def _delivery(row: Mapping[str, Any]) -> Delivery:
    return Delivery(**{name: row[name] for name in Delivery.__dataclass_fields__})
