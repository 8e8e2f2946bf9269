"""How events change what the webhook decider remembers. Pure; fails on no event of its own."""

from __future__ import annotations

import msgspec

from schemas.webhooks.events import (
    AttemptRecorded,
    EndpointDeleted,
    EndpointSaved,
    MessagePublished,
    MessagesResent,
    PlannedDelivery,
)
from streams.runtime.decider.rules import Event, State
from streams.webhooks.state import (
    ENDPOINTS,
    FAILING,
    HOUR_MS,
    HOURS_MAX,
    LANES,
    TENANTS,
    WAITING,
    Endpoint,
    Failing,
    Secret,
    Tenant,
    Waiting,
)

DAY_MS = 24 * HOUR_MS
DISABLE_AFTER_MS = 5 * DAY_MS
QUIET_MS = DAY_MS
"""Failures further apart than this are two stories: nothing is known of the time between."""


def evolve(state: State, event: Event) -> None:
    """Fold one event."""
    match event.row:
        case MessagePublished() as row:
            _published(state, row)
        case MessagesResent() as row:
            for one in (*row.deliveries, *row.queued):
                _queue(state, row.tenant_id, one)
        case AttemptRecorded() as row:
            _attempted(state, row)
        case EndpointSaved() as row:
            _saved(state, row)
        case EndpointDeleted() as row:
            tenant: Tenant = state[TENANTS][row.tenant_id]
            left = tuple(id_ for id_ in tenant.endpoints if id_ != row.endpoint_id)
            state[TENANTS][row.tenant_id] = msgspec.structs.replace(
                tenant, endpoints=left, revisions=row.revision
            )
            del state[ENDPOINTS][row.tenant_id, row.endpoint_id]
            _well(state, (row.tenant_id, row.endpoint_id))


def _published(state: State, row: MessagePublished) -> None:
    tenant: Tenant = state[TENANTS].get(row.tenant_id) or Tenant()
    hour_ms = row.event_time - row.event_time % HOUR_MS
    hours = tenant.hours
    if not hours or hours[-1][0] < hour_ms:
        hours = (*hours, (hour_ms, row.sequence))[-HOURS_MAX:]
    state[TENANTS][row.tenant_id] = msgspec.structs.replace(
        tenant, sequence=row.sequence + 1, hours=hours
    )
    for one in (*row.deliveries, *row.queued):
        _queue(state, row.tenant_id, one)


def _queue(state: State, tenant_id: str, one: PlannedDelivery) -> None:
    """Into its lane, if it has one; the first of a lane is on its way."""
    if not one["order_key"]:
        return
    lane = (tenant_id, one["endpoint_id"], one["order_key"])
    first, last = state[LANES].get(lane) or (0, -1)
    state[LANES][lane] = (first, last + 1)
    state[WAITING][*lane, last + 1] = Waiting(
        one["delivery_id"], one["message_id"], one["sequence"], one["event_type"]
    )


def _attempted(state: State, row: AttemptRecorded) -> None:
    key = (row.tenant_id, row.endpoint_id)
    if row.final:
        _leave(state, (*key, row.order_key), row.delivery_id)
    endpoint: Endpoint | None = state[ENDPOINTS].get(key)
    if row.status == "delivered":
        _well(state, key)
    elif row.status != "skipped" and endpoint is not None and not endpoint.disabled:
        failing: Failing | None = state[FAILING].get(key)
        now = row.event_time
        goes_on = failing is not None and now - failing.last_ms <= QUIET_MS
        since_ms = failing.since_ms if failing and goes_on else now
        state[FAILING][key] = Failing(since_ms, now)
        # A timer that is due at once, so that being disabled is an event of its own.
        if row.status == "gone":
            state.schedule(f"gone/{row.tenant_id}/{row.endpoint_id}", now)
        elif now - since_ms >= DISABLE_AFTER_MS:
            state.schedule(f"failing/{row.tenant_id}/{row.endpoint_id}", now)


def _leave(state: State, lane: tuple[str, str, str], delivery_id: str) -> None:
    """A delivery has ended; only that of the first moves its lane (reports may be repeated)."""
    span: tuple[int, int] | None = state[LANES].get(lane)
    if span is None or state[WAITING][*lane, span[0]].delivery_id != delivery_id:
        return
    first, last = span
    del state[WAITING][*lane, first]
    if first == last:
        del state[LANES][lane]
    else:
        state[LANES][lane] = (first + 1, last)


def _saved(state: State, row: EndpointSaved) -> None:
    key = (row.tenant_id, row.endpoint_id)
    tenant: Tenant = state[TENANTS].get(row.tenant_id) or Tenant()
    known = row.endpoint_id in tenant.endpoints
    state[TENANTS][row.tenant_id] = msgspec.structs.replace(
        tenant,
        endpoints=tenant.endpoints if known else (*tenant.endpoints, row.endpoint_id),
        revisions=row.revision,
    )
    state[ENDPOINTS][key] = Endpoint(
        url=row.url,
        event_types=tuple(row.event_types),
        ordered=row.ordered,
        rate_per_s=row.rate_per_s,
        description=row.description,
        secrets=tuple(Secret(one["secret"], one["expires_ms"]) for one in row.secrets),
        created_ms=row.created_at,
        revision=row.revision,
        disabled=row.disabled,
    )
    if row.change in ("enabled", "disabled"):
        _well(state, key)


def _well(state: State, key: tuple[str, str]) -> None:
    """Forget that it failed, and what was to follow."""
    if key in state[FAILING]:
        del state[FAILING][key]
    for reason in ("failing", "gone"):
        state.cancel(f"{reason}/{key[0]}/{key[1]}")
