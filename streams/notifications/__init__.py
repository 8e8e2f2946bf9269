"""Notifications: one recipient's mails, SMS and pushes, decided by one writer, sent by three lanes.

A command is decided by the owner of its recipient: preferences, quiet hours, schedule, digest,
idempotency key, addresses. What is to be sent now goes to the lane of its priority, each with its
own topic, reactor and share of the providers' rates, so that one-time codes pass campaigns by.
Providers fail over to each other; what became of a message is an event, and so is what the
provider reports later. Campaigns come in at a pace that the decider keeps up with.
"""

from __future__ import annotations

from functools import partial

from schemas.notifications.events import CAMPAIGNS, COMMANDS, EVENTS, OUTCOMES
from schemas.notifications.events import TEMPLATES as TEMPLATES_TOPIC
from sinks import notifications as store
from streams.notifications.campaigns import open_campaigns
from streams.notifications.lanes import DERIVATIONS, LANES
from streams.notifications.rules import NotificationRules
from streams.notifications.sending import open_sending
from streams.notifications.trail import Reports, Trail, Versions
from streams.runtime.decider.rules import Decider
from streams.runtime.projection import Projection, System
from streams.runtime.reactor.rules import Limits, Reactor, RetryPolicy

DECIDER = Decider("notifications", COMMANDS, EVENTS, NotificationRules())

_RETRIES = {
    "otp": RetryPolicy((1_000, 5_000, 15_000)),
    "transactional": RetryPolicy((5_000, 30_000, 300_000, 1_800_000)),
    "marketing": RetryPolicy((30_000, 300_000, 1_800_000)),
}
"""A code that is minutes late is of no use; a mail is."""

SENDING = tuple(
    Reactor(
        name=f"notifications-send-{lane}",
        topic=topic,
        open=partial(open_sending, lane),
        outcomes=OUTCOMES,
        retry=_RETRIES[lane],
    )
    for lane, topic in LANES.items()
)

SYSTEM = System(
    name="notifications",
    title="Notifications",
    deciders=(DECIDER,),
    derivations=DERIVATIONS,
    reactors=(
        *SENDING,
        Reactor(
            name="notifications-campaigns",
            topic=CAMPAIGNS,
            open=open_campaigns,
            retry=RetryPolicy((5_000, 30_000, 300_000)),
            limits=Limits(in_flight_max=2, timeout_ms=120_000),
        ),
    ),
    projections=(
        Projection("notifications-trail", EVENTS, Trail(), store.TRAIL, store="redis"),
        Projection(
            "notifications-deliveries", OUTCOMES, Reports(), store.DELIVERIES, store="redis"
        ),
        Projection(
            "notifications-templates", TEMPLATES_TOPIC, Versions(), store.TEMPLATES, store="redis"
        ),
    ),
)
