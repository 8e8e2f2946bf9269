"""Conversations and what is said in them, over plain HTTP: all but the pushing."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Path, Query, Response

from api import ingest
from api.auth import READ, WRITE, Principal, requires
from api.commands import VERDICT, Asked, AskedDep, ask
from api.json_route import JsonRoute
from api.models import Id
from api.positions import AppliedSource
from api.problem import Problem, responses
from api.reads import fresh
from api.routes.chat.models import (
    SEQ_MAX,
    Changed,
    Entries,
    Marked,
    Members,
    Messages,
    Moved,
    NewBody,
    NewConversation,
    NewMessage,
    Receipt,
    Sent,
    Standing,
    Started,
)
from api.services import ServicesDep
from schemas.chat import events
from sinks.chat.presence import Presence
from sinks.chat.reader import Conversation, Entry, Mark, Message

LIMIT_MAX = 200
USERS_MAX = 500
_NAMESPACE = uuid.UUID("3f1f4f7c-6a7e-4a35-8a53-6f0d8f0f2c11")


class ChatReads(AppliedSource, Protocol):
    """What is asked of the history; `sinks.chat.reader` answers."""

    async def conversation(self, conversation_id: str) -> Conversation | None: ...
    async def of_user(self, user: str) -> Sequence[Conversation]: ...
    async def marks(self, conversation_id: str) -> Sequence[Mark]: ...
    async def entries(self, conversation_id: str, after: int, limit: int) -> Sequence[Entry]: ...
    async def messages(
        self, conversation_id: str, before: int, limit: int
    ) -> Sequence[Message]: ...


ConversationId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$", description="The conversation.")
]
MessageSeq = Annotated[int, Path(ge=1, le=SEQ_MAX, description="Number of the message.")]
HistoryDep = Annotated[ChatReads, Depends(fresh("chat", events.EVENTS))]

writes = APIRouter(
    prefix="/v1/conversations",
    tags=["chat"],
    route_class=JsonRoute,
    dependencies=[requires(WRITE)],
    responses={**VERDICT, **responses(400, 403, 404, 409, 413, 415)},
)


@writes.post("", status_code=201, response_model=Started)
async def start_conversation(
    new: NewConversation, services: ServicesDep, asked: AskedDep
) -> Response:
    """Start a conversation. Of the same two people there is one direct conversation: 409."""
    two = sorted({asked.subject, *new.members})
    direct = str(uuid.uuid5(_NAMESPACE, "\n".join(two)))
    row = events.StartConversation(
        conversation_id=direct if new.kind == "direct" else asked.new_id("conversation"),
        by=asked.subject,
        kind=new.kind,
        title=new.title,
        members=new.members,
    )
    return await ask(services, asked, events.COMMANDS, events.START_CONVERSATION.name, row)


@writes.patch("/{conversation_id}/members", response_model=Moved)
async def change_members(
    conversation_id: ConversationId, wanted: Members, services: ServicesDep, asked: AskedDep
) -> Response:
    """Take people into a group; out of it, oneself, or as its owner anybody."""
    row = events.ChangeMembers(conversation_id, asked.subject, wanted.add, wanted.remove)
    return await ask(services, asked, events.COMMANDS, events.CHANGE_MEMBERS.name, row)


@writes.post("/{conversation_id}/messages", status_code=201, response_model=Sent)
async def send_message(
    conversation_id: ConversationId, new: NewMessage, services: ServicesDep, asked: AskedDep
) -> Response:
    """Say something. `clientMsgId` is the idempotency key, here and over a socket alike."""
    row = events.SendMessage(conversation_id, asked.subject, new.clientMsgId, new.body, new.replyTo)
    named = keyed(asked, new.clientMsgId, row)
    return await ask(services, named, events.COMMANDS, events.SEND_MESSAGE.name, row)


@writes.patch("/{conversation_id}/messages/{seq}", response_model=Changed)
async def edit_message(
    conversation_id: ConversationId,
    seq: MessageSeq,
    wanted: NewBody,
    services: ServicesDep,
    asked: AskedDep,
) -> Response:
    """Change the text of a message of yours, if it is not too old."""
    row = events.ChangeMessage(conversation_id, asked.subject, seq, wanted.body)
    return await ask(services, asked, events.COMMANDS, events.CHANGE_MESSAGE.name, row)


@writes.delete("/{conversation_id}/messages/{seq}", response_model=Changed)
async def delete_message(
    conversation_id: ConversationId, seq: MessageSeq, services: ServicesDep, asked: AskedDep
) -> Response:
    """Take a message of yours back. Its entry stays in the log; its text is shown no longer."""
    row = events.ChangeMessage(conversation_id, asked.subject, seq, None)
    return await ask(services, asked, events.COMMANDS, events.CHANGE_MESSAGE.name, row)


@writes.put("/{conversation_id}/receipts", response_model=Marked)
async def move_receipt(
    conversation_id: ConversationId, wanted: Receipt, services: ServicesDep, asked: AskedDep
) -> Response:
    """Say how far you have received and read."""
    row = events.MoveReceipt(conversation_id, asked.subject, wanted.delivered, wanted.read)
    return await ask(services, asked, events.COMMANDS, events.MOVE_RECEIPT.name, row)


def keyed(asked: Asked, client_msg_id: str, row: Any) -> Asked:
    """The request under the client's own id of what it sends."""
    return replace(asked, key=client_msg_id, fingerprint=fingerprint(row))


def fingerprint(row: Any) -> str:
    """What tells two requests under one key apart; the same for HTTP and sockets."""
    return repr(row)


router = APIRouter(
    prefix="/v1",
    tags=["chat"],
    dependencies=[requires(READ)],
    responses={**responses(404, 504), 200: {"headers": ingest.APPLIED_HEADER}},
)
ReaderDep = Annotated[Principal, requires(READ)]


@router.get("/conversations", response_model=list[Standing])
async def my_conversations(source: HistoryDep, principal: ReaderDep) -> list[Standing]:
    """Your conversations, the one with the newest entry first."""
    return [Standing(**asdict(one)) for one in await source.of_user(principal.subject)]


@router.get("/conversations/{conversation_id}")
async def conversation(
    conversation_id: ConversationId, source: HistoryDep, principal: ReaderDep
) -> Standing:
    """One of your conversations, and how far everybody in it is."""
    found = await _joined(source, conversation_id, principal)
    marks = [m for m in await source.marks(conversation_id) if m.user_id in found.members]
    return Standing(**asdict(found), marks=marks)


@router.get("/conversations/{conversation_id}/messages")
async def messages(
    conversation_id: ConversationId,
    source: HistoryDep,
    principal: ReaderDep,
    before: Annotated[int, Query(ge=1, le=SEQ_MAX, description="Entries below it.")] = SEQ_MAX,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 50,
) -> Messages:
    """The last messages before an entry, as they read now: edits applied, deleted ones empty."""
    found = await _joined(source, conversation_id, principal)
    page = await source.messages(conversation_id, min(before, found.last_seq + 1), limit)
    more = page[-1].seq if len(page) == limit and page[-1].seq > 1 else None
    return Messages(messages=list(page), before=more)


@router.get("/conversations/{conversation_id}/entries")
async def entries(
    conversation_id: ConversationId,
    source: HistoryDep,
    principal: ReaderDep,
    after: Annotated[int, Query(ge=0, le=SEQ_MAX, description="Entries behind it.")] = 0,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = 100,
) -> Entries:
    """All that happened behind an entry, in order: what a socket would tell."""
    await _joined(source, conversation_id, principal)
    page = await source.entries(conversation_id, after, limit)
    return Entries(entries=list(page), more=len(page) == limit)


@router.get("/presence", responses=responses(503))
async def presence(
    services: ServicesDep,
    principal: ReaderDep,
    user: Annotated[list[Id], Query(min_length=1, max_length=USERS_MAX, description="Who.")],
) -> dict[str, bool]:
    """Who has a socket open that was heard of lately."""
    sessions: Presence = services.opened("chat-presence")
    return await sessions.online(user)


async def _joined(source: ChatReads, conversation_id: str, principal: Principal) -> Conversation:
    """A conversation that one is in. That there are others is not told."""
    found = await source.conversation(conversation_id)
    if found is None or principal.subject not in found.members:
        raise Problem(HTTPStatus.NOT_FOUND, "no-conversation", "there is no such conversation")
    return found
