"""Webhooks: messages of a tenant, posted to the endpoints that want them, signed.

A message is decided by the owner of its tenant: its number, which endpoints get it, what has to
wait for an earlier one of its order key. A derivation makes one record a delivery, spread over the
partitions by endpoint; a reactor posts it, with Svix's schedule of retries, limits a tenant and an
endpoint, and a circuit breaker an endpoint. What became of a try comes back as a command, so it is
decided in the same order what may follow, and whether the endpoint is disabled. Receivers may read
the same messages by number instead.

What is promised: a message reaches each endpoint that wants it at least once, until its last try,
always with the same `webhook-id` and the same bytes; a receiver forgets repeats by that id. Without
an order key messages may pass each other. With one, an endpoint that asks for order gets the
messages of the key in the order of the log, each after the one before was taken or given up: while
the receiver is down the key waits, and when it is back, it waits for the next try of its first.
"""

from __future__ import annotations

from schemas.webhooks.events import COMMANDS, DELIVERIES, EVENTS
from sinks.webhooks import WEBHOOKS
from streams.runtime.decider.rules import Decider
from streams.runtime.projection import Projection, System
from streams.runtime.reactor.rules import Breaker, Limits, Reactor, RetryPolicy
from streams.webhooks.delivering import IN_FLIGHT_MAX, TIMEOUT_MS, open_delivering
from streams.webhooks.fanout import FAN_OUT
from streams.webhooks.rules import WebhookRules
from streams.webhooks.trail import Trail

DAY_MS = 86_400_000

DECIDER = Decider("webhooks", COMMANDS, EVENTS, WebhookRules(), idempotency_ttl_ms=DAY_MS)

SCHEDULE_MS = (5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 36_000_000)
"""Before the second, third, … try (https://docs.svix.com/retries)."""

DELIVER = Reactor(
    name="webhooks-deliver",
    topic=DELIVERIES,
    open=open_delivering,
    outcomes=COMMANDS,
    retry=RetryPolicy(SCHEDULE_MS),
    limits=Limits(IN_FLIGHT_MAX, per_tenant=64, per_target=8, timeout_ms=TIMEOUT_MS + 10_000),
    breaker=Breaker(failures=10, open_ms=10_000, open_ms_max=300_000),
)

SYSTEM = System(
    name="webhooks",
    title="Webhook delivery",
    deciders=(DECIDER,),
    derivations=(FAN_OUT,),
    reactors=(DELIVER,),
    projections=(Projection("webhooks-log", EVENTS, Trail(), WEBHOOKS, store="cassandra"),),
)
