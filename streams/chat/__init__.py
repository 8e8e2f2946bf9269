"""Chat: conversations with one order, that anybody can take up again at any entry.

A conversation is decided by one writer (`rules`), which numbers its entries without gaps, and is
folded into its history (`fold`). The API pushes what is decided to the sockets of its members
(`GET /v1/chat/socket`; `api/routes/chat/frames.py` has the frames, `/v1/chat/page/page.html` a
page that uses them): whoever comes back says which entry it has, and is told those behind it from
the history and then what the log brings, each once. Who has no socket gets a notification (`push`).
"""

from __future__ import annotations

from schemas.chat.events import COMMANDS, EVENTS
from schemas.notifications.events import CAMPAIGNS
from sinks.chat import HISTORY
from streams.chat.fold import KeepChat
from streams.chat.push import open_push
from streams.chat.rules import ChatRules
from streams.runtime.decider.rules import Decider
from streams.runtime.projection import Projection, System
from streams.runtime.reactor.rules import Reactor, RetryPolicy

SYSTEM = System(
    name="chat",
    title="Chat",
    deciders=(Decider("chat", COMMANDS, EVENTS, ChatRules()),),
    projections=(Projection("chat-history", EVENTS, KeepChat(), HISTORY, store="cassandra"),),
    reactors=(
        Reactor(
            name="chat-push",
            topic=EVENTS,
            open=open_push,
            outcomes=CAMPAIGNS,
            retry=RetryPolicy((5_000, 30_000, 300_000)),
        ),
    ),
)
