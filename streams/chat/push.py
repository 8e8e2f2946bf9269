"""Who has no socket open gets a message as a notification.

Whether somebody is there is not in the log, so this is a reactor: it looks at who was in the
conversation at that entry and who of them has a session, and asks the notification system for
one push to each of the others. One message is one part of a campaign of its own, whose recipients
are each told once however often that is repeated; preferences and devices are not chat's to know.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from connectors.encode import Encoder
from connectors.producer import LogProducer
from schemas.chat.events import CONVERSATION_CHANGED, ConversationChanged
from schemas.notifications.events import TEMPLATES, CampaignSubmitted, TemplatePublished
from schemas.registry import schema_ids
from sinks.chat.presence import Presence
from sinks.chat.reader import ChatReader
from streams.runtime.reactor.rules import Retry, Route, Task
from streams.runtime.settings import Settings

TEMPLATE: Final = "chat-message"
TEMPLATE_VERSION: Final = "1"
"""Another text has another version."""
PREVIEW_CHARS: Final = 120
LIFETIME_MS: Final = 24 * 3_600_000
"""What nobody could be told of by then is old; a reactor that begins anew passes it over."""
MEMBERS_MAX: Final = 1_000
"""Lists of members that are remembered. They never change: a change is another entry."""
SOON_MS: Final = 1_000
"""When to look again for a list of members that is not in the history yet."""


class Reads(Protocol):
    """What is asked of the history."""

    async def members(self, conversation_id: str, seq: int) -> Sequence[str] | None:
        """Who the entry says is in it."""
        ...


class Sessions(Protocol):
    """What is asked of presence."""

    async def online(self, users: Sequence[str]) -> Mapping[str, bool]:
        """Who has a session."""
        ...


class Push:
    """`Handler` of what is said."""

    def __init__(self, history: Reads, sessions: Sessions, now_ms: Callable[[], int]) -> None:
        self._history = history
        self._sessions = sessions
        self._now_ms = now_ms
        self._members: dict[tuple[str, int], Sequence[str]] = {}

    def route(self, record: str, row: Any) -> Route | None:
        """Messages; edits and the like disturb nobody."""
        sent = record == CONVERSATION_CHANGED.fullname and row.change == "sent"
        return Route(tenant=row.conversation_id) if sent else None

    async def act(self, task: Task) -> CampaignSubmitted | None:
        """Ask for a push to the others who are not there. Raises `Retry`."""
        row: ConversationChanged = task.row
        if row.recorded_at + LIFETIME_MS <= self._now_ms():
            return None
        others = [user for user in await self._in_it(row) if user != row.by]
        online = await self._sessions.online(others)
        away = [user for user in others if not online[user]]
        return _campaign(row, away) if away else None

    def gave_up(self, task: Task, reason: str) -> None:
        """The dead letter is what there is to see; the message itself is in the history."""

    async def _in_it(self, row: ConversationChanged) -> Sequence[str]:
        key = (row.conversation_id, row.members_seq)
        if key not in self._members:
            found = await self._history.members(*key)
            if found is None:
                raise Retry("the history has not got there yet", after_ms=SOON_MS)
            while len(self._members) >= MEMBERS_MAX:
                del self._members[next(iter(self._members))]
            self._members[key] = found
        return self._members[key]


def _campaign(row: ConversationChanged, users: Sequence[str]) -> CampaignSubmitted:
    name = f"chat/{row.conversation_id}/{row.seq}"
    shown = {
        "from": row.by,
        "conversation": row.conversation_id,
        "title": row.title or row.by,
        "preview": row.body[:PREVIEW_CHARS],
        "seq": row.seq,
    }
    return CampaignSubmitted(
        chunk_id=name,
        campaign_id=name,
        template=TEMPLATE,
        template_version=TEMPLATE_VERSION,
        priority="transactional",
        channels=["push"],
        params=json.dumps(shown, ensure_ascii=False),
        user_ids=list(users),
        happened_at=row.recorded_at,
        send_at=None,
        expires_at=row.recorded_at + LIFETIME_MS,
    )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def template(now_ms: int) -> TemplatePublished:
    """The text of a push."""
    text = {"channel": "push", "locale": "en", "subject": "{{ title }}", "html": ""}
    return TemplatePublished(
        template=TEMPLATE,
        version=TEMPLATE_VERSION,
        priority="transactional",
        default_locale="en",
        contents=[{**text, "text": "{{ preview }}"}],  # type: ignore[typeddict-item]
        digest_window_ms=0,
        lifetime_ms=0,
        published_at=now_ms,
    )


@asynccontextmanager
async def open_push(settings: Settings) -> AsyncIterator[Push]:
    """The handler over the real stores. Publishes the text of its pushes first."""
    ids = await asyncio.to_thread(schema_ids, TEMPLATES, settings.registry)
    async with LogProducer.open(settings.kafka, {TEMPLATES.name: Encoder(TEMPLATES, ids)}) as log:
        text = template(_wall_ms())
        await log.send(TEMPLATES.name, type(text).__name__, text)
    async with ChatReader.open(settings) as history, Presence.open(settings) as sessions:
        yield Push(history, sessions, _wall_ms)
