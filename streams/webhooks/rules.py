"""The rules of webhook delivery: which endpoint gets which message, when, and until when. Pure.

A tenant has one writer, so an endpoint gets every message from the one after its creation on, each
message has a number without gaps, and of a lane (endpoint and order key) one delivery is on its
way: the report of its end is what lets the next one go. Reports of tries are commands, too, so
whether an endpoint has been failing for days is decided here, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from schemas.webhooks.events import (
    AttemptRecorded,
    DeleteEndpoint,
    EndpointChange,
    EndpointDeleted,
    EndpointSaved,
    MessagePublished,
    MessagesResent,
    PlannedDelivery,
    PublishMessage,
    RecoverMessages,
    ReportAttempt,
    ResendMessages,
    RotateSecret,
    SaveEndpoint,
    SetEndpointEnabled,
)
from streams.runtime.decider.rules import Command, Event, Rejected, Reply, State, Timer
from streams.webhooks.folding import evolve
from streams.webhooks.state import (
    ENDPOINTS,
    LANES,
    TABLES,
    TENANTS,
    WAITING,
    Endpoint,
    Secret,
    Tenant,
)

VERSION = 1
ENDPOINTS_MAX = 100
SECRETS_MAX = 4


class WebhookRules:
    """`Rules` of the decider `webhooks`."""

    version = VERSION
    tables: Mapping[str, Any] = TABLES

    def decide(self, state: State, command: Command) -> Any:
        """The event of a command."""
        now = command.time_ms
        match command.row:
            case PublishMessage() as row:
                return _publish(state, row, now)
            case ReportAttempt() as row:
                return _report(state, row, now)
            case ResendMessages() as row:
                return _resend(state, row, now)
            case RecoverMessages() as row:
                return _recover(state, row, now)
        return _changed(state, command)

    def expire(self, state: State, timer: Timer) -> Any:
        """The event of a due timer: an endpoint that fails is disabled."""
        reason, tenant_id, endpoint_id = timer.name.split("/")
        endpoint = state[ENDPOINTS][tenant_id, endpoint_id]
        changed = msgspec.structs.replace(endpoint, disabled=reason)
        return _saved(state, (tenant_id, endpoint_id), changed, "disabled", timer.time_ms)

    def evolve(self, state: State, event: Event) -> None:
        """Fold one event."""
        evolve(state, event)

    def reply(self, event: Event) -> Reply:
        """What the sender is told."""
        match event.row:
            case MessagePublished() as row:
                told = {"id": row.message_id, "sequence": row.sequence}
                return Reply(202, told | {"deliveries": len(row.deliveries) + len(row.queued)})
            case MessagesResent() as row:
                number = len(row.deliveries) + len(row.queued)
                return Reply(202, {"id": row.request_id, "deliveries": number})
            case EndpointSaved() as row:
                status = 201 if row.change == "created" else 200
                return Reply(status, {"id": row.endpoint_id, "revision": row.revision})
            case EndpointDeleted() as row:
                return Reply(200, {"id": row.endpoint_id, "revision": row.revision})
        return Reply(200, {"id": event.row.delivery_id})


def _publish(state: State, row: PublishMessage, now: int) -> MessagePublished:
    tenant = _tenant(state, row.tenant_id)
    deliveries: list[PlannedDelivery] = []
    queued: list[PlannedDelivery] = []
    for id_ in tenant.endpoints:
        endpoint: Endpoint = state[ENDPOINTS][row.tenant_id, id_]
        if endpoint.disabled or not endpoint.wants(row.event_type):
            continue
        planned = PlannedDelivery(
            delivery_id=f"{row.message_id}/{id_}",
            endpoint_id=id_,
            revision=endpoint.revision,
            message_id=row.message_id,
            sequence=tenant.sequence,
            event_type=row.event_type,
            order_key=row.order_key if endpoint.ordered else "",
        )
        busy = (row.tenant_id, id_, planned["order_key"]) in state[LANES]
        (queued if busy else deliveries).append(planned)
    return MessagePublished(
        row.tenant_id,
        row.message_id,
        tenant.sequence,
        row.event_type,
        row.order_key,
        row.body,
        deliveries,
        queued,
        now,
    )


def _report(state: State, row: ReportAttempt, now: int) -> AttemptRecorded:
    released: list[PlannedDelivery] = []
    lane = (row.tenant_id, row.endpoint_id, row.order_key)
    span: tuple[int, int] | None = state[LANES].get(lane)
    if row.final and span is not None and span[0] < span[1]:
        first, _ = span
        if state[WAITING][*lane, first].delivery_id == row.delivery_id:
            released.append(_released(state, lane, first + 1))
    return AttemptRecorded(**asdict(row), deliveries=released, event_time=now)


def _released(state: State, lane: tuple[str, str, str], number: int) -> PlannedDelivery:
    """What waits in a lane, by the endpoint as it is now; one that is deleted has no revision."""
    tenant_id, endpoint_id, order_key = lane
    one = state[WAITING][*lane, number]
    endpoint: Endpoint | None = state[ENDPOINTS].get((tenant_id, endpoint_id))
    return PlannedDelivery(
        delivery_id=one.delivery_id,
        endpoint_id=endpoint_id,
        revision=endpoint.revision if endpoint else 0,
        message_id=one.message_id,
        sequence=one.sequence,
        event_type=one.event_type,
        order_key=order_key,
    )


def _resend(state: State, row: ResendMessages, now: int) -> MessagesResent:
    endpoint = _enabled(state, row.tenant_id, row.endpoint_id)
    deliveries: list[PlannedDelivery] = []
    queued: list[PlannedDelivery] = []
    taken: set[str] = set()
    for message in row.messages:
        order_key = message["order_key"] if endpoint.ordered else ""
        planned = PlannedDelivery(
            delivery_id=f"{message['message_id']}/{row.endpoint_id}/{row.request_id}",
            endpoint_id=row.endpoint_id,
            revision=endpoint.revision,
            message_id=message["message_id"],
            sequence=message["sequence"],
            event_type=message["event_type"],
            order_key=order_key,
        )
        busy = (row.tenant_id, row.endpoint_id, order_key) in state[LANES] or order_key in taken
        (queued if busy else deliveries).append(planned)
        if order_key:
            taken.add(order_key)
    return MessagesResent(
        row.tenant_id,
        row.endpoint_id,
        row.request_id,
        deliveries,
        queued,
        endpoint.revision,
        row.since,
        row.next_sequence,
        row.until_sequence,
        now,
    )


def _recover(state: State, row: RecoverMessages, now: int) -> MessagesResent:
    endpoint = _enabled(state, row.tenant_id, row.endpoint_id)
    tenant = _tenant(state, row.tenant_id)
    return MessagesResent(
        row.tenant_id,
        row.endpoint_id,
        row.request_id,
        [],
        [],
        endpoint.revision,
        row.since,
        tenant.first_since(row.since),
        tenant.sequence,
        now,
    )


def _changed(state: State, command: Command) -> EndpointSaved | EndpointDeleted:
    now = command.time_ms
    match command.row:
        case SaveEndpoint() as row:
            return _save(state, row, now)
        case RotateSecret() as row:
            return _rotate(state, row, now)
        case SetEndpointEnabled() as row:
            return _switch(state, row, now)
        case DeleteEndpoint() as row:
            _known(state, row.tenant_id, row.endpoint_id)
            revision = _next_revision(state, row.tenant_id)
            return EndpointDeleted(row.tenant_id, row.endpoint_id, revision, now)
    raise Rejected("unknown_command", command.record, status=422)


def _save(state: State, row: SaveEndpoint, now: int) -> EndpointSaved:
    found: Endpoint | None = state[ENDPOINTS].get((row.tenant_id, row.endpoint_id))
    if row.create and found is not None:
        raise Rejected("endpoint_exists", f"there is an endpoint {row.endpoint_id}")
    if not row.create and found is None:
        raise _unknown(row.endpoint_id)
    if row.create and len(_tenant(state, row.tenant_id).endpoints) >= ENDPOINTS_MAX:
        raise Rejected("too_many_endpoints", f"a tenant has at most {ENDPOINTS_MAX}")
    wanted = Endpoint(
        url=row.url,
        event_types=tuple(row.event_types),
        ordered=row.ordered,
        rate_per_s=row.rate_per_s,
        description=row.description,
        secrets=found.secrets if found else (Secret(row.secret),),
        created_ms=found.created_ms if found else now,
        disabled=found.disabled if found else "",
    )
    change: EndpointChange = "updated" if found else "created"
    return _saved(state, (row.tenant_id, row.endpoint_id), wanted, change, now)


def _rotate(state: State, row: RotateSecret, now: int) -> EndpointSaved:
    """The new secret first; of the others those that have not expired, none longer than asked."""
    endpoint = _known(state, row.tenant_id, row.endpoint_id)
    if any(one.secret == row.secret for one in endpoint.secrets):
        raise Rejected("same_secret", "the new secret is one that is in use", status=422)
    ends = now + row.overlap_ms
    old = [
        Secret(one.secret, min(ends, ends if one.expires_ms is None else one.expires_ms))
        for one in endpoint.secrets
        if one.expires_ms is None or one.expires_ms > now
    ]
    kept = (Secret(row.secret), *old)[:SECRETS_MAX]
    changed = msgspec.structs.replace(endpoint, secrets=kept)
    return _saved(state, (row.tenant_id, row.endpoint_id), changed, "secret_rotated", now)


def _switch(state: State, row: SetEndpointEnabled, now: int) -> EndpointSaved:
    endpoint = _known(state, row.tenant_id, row.endpoint_id)
    disabled = "" if row.enabled else "by_hand"
    changed = msgspec.structs.replace(endpoint, disabled=disabled)
    change: EndpointChange = "enabled" if row.enabled else "disabled"
    return _saved(state, (row.tenant_id, row.endpoint_id), changed, change, now)


def _saved(
    state: State, key: tuple[str, str], endpoint: Endpoint, change: EndpointChange, now: int
) -> EndpointSaved:
    tenant_id, endpoint_id = key
    return EndpointSaved(
        tenant_id=tenant_id,
        endpoint_id=endpoint_id,
        revision=_next_revision(state, tenant_id),
        change=change,
        url=endpoint.url,
        event_types=list(endpoint.event_types),
        ordered=endpoint.ordered,
        rate_per_s=endpoint.rate_per_s,
        description=endpoint.description,
        secrets=[{"secret": o.secret, "expires_ms": o.expires_ms} for o in endpoint.secrets],
        disabled=endpoint.disabled,
        created_at=endpoint.created_ms,
        event_time=now,
    )


def _tenant(state: State, tenant_id: str) -> Tenant:
    found: Tenant | None = state[TENANTS].get(tenant_id)
    return found or Tenant()


def _next_revision(state: State, tenant_id: str) -> int:
    return _tenant(state, tenant_id).revisions + 1


def _known(state: State, tenant_id: str, endpoint_id: str) -> Endpoint:
    found: Endpoint | None = state[ENDPOINTS].get((tenant_id, endpoint_id))
    if found is None:
        raise _unknown(endpoint_id)
    return found


def _enabled(state: State, tenant_id: str, endpoint_id: str) -> Endpoint:
    found = _known(state, tenant_id, endpoint_id)
    if found.disabled:
        raise Rejected("endpoint_disabled", f"{endpoint_id} is disabled: {found.disabled}")
    return found


def _unknown(endpoint_id: str) -> Rejected:
    return Rejected("unknown_endpoint", f"there is no endpoint {endpoint_id}", status=404)
