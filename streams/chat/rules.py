"""Conversations: who is in them, what is said, in which order, and how far it has been read.

A conversation has one writer, the owner of its partition, which numbers its entries 1, 2, 3, …:
messages, edits, deletions and changes of members are one sequence, so nothing overtakes what it
is about. A message sent again is recognised by its idempotency key, the sender's id of it.

Who wrote a message is remembered for the last `CHANGEABLE_MIN` entries and up to a chunk more:
older messages stay as they are, and what a conversation takes in memory has a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from schemas.chat.events import (
    CHANGE_MEMBERS,
    CHANGE_MESSAGE,
    SEND_MESSAGE,
    START_CONVERSATION,
    ChangeMembers,
    ChangeMessage,
    ConversationChange,
    ConversationChanged,
    ConversationKind,
    MoveReceipt,
    ReceiptMoved,
    SendMessage,
    StartConversation,
)
from streams.runtime.decider.rules import Command, Event, Rejected, Reply, State, Timer

MEMBERS_MAX: Final = 500
BODY_CHARS_MAX: Final = 16_384
CHUNK: Final = 64
"""Entries whose authors are one value of the state."""
CHANGEABLE_MIN: Final = 16 * CHUNK
"""A message among so many last entries can be edited and deleted."""


class Conversation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A conversation as it stands. `members` are in order; the entry `members_seq` named them."""

    kind: ConversationKind
    title: str
    owner: str
    members: tuple[str, ...]
    members_seq: int
    last_seq: int


class ChatRules:
    """Pure; see `streams.runtime.decider.rules.Rules`."""

    version = 1
    tables: Mapping[str, Any] = {
        "conversations": Conversation,
        "authors": tuple[str, ...],
        "marks": tuple[int, int],
    }
    """`authors` is by conversation and chunk: whose message each entry of it is, "" for none that
    can be changed. `marks` is by conversation and member: delivered, read.
    """

    def decide(self, state: State, command: Command) -> Any:
        row, now_ms = command.row, command.time_ms
        match command.record:
            case START_CONVERSATION.fullname:
                return _start(state, row, now_ms)
            case SEND_MESSAGE.fullname:
                return _send(state, row, now_ms)
            case CHANGE_MESSAGE.fullname:
                return _change(state, row, now_ms)
            case CHANGE_MEMBERS.fullname:
                return _members(state, row, now_ms)
            case _:
                return _receipt(state, row, now_ms)

    def expire(self, state: State, timer: Timer) -> Any:
        raise LookupError(f"chat sets no timers, such as {timer.name}")

    def evolve(self, state: State, event: Event) -> None:
        row = event.row
        if isinstance(row, ReceiptMoved):
            state["marks"][row.conversation_id, row.user_id] = (row.delivered, row.read)
            return
        before: Conversation | None = state["conversations"].get(row.conversation_id)
        members = tuple(row.members) if row.members_seq == row.seq else _of(before).members
        state["conversations"][row.conversation_id] = Conversation(
            row.kind, row.title, row.owner, members, row.members_seq, row.seq
        )
        for user in row.removed:
            if (row.conversation_id, user) in state["marks"]:
                del state["marks"][row.conversation_id, user]
        _remember(state, row)

    def reply(self, event: Event) -> Reply:
        row = event.row
        if isinstance(row, ReceiptMoved):
            return Reply(200, {"delivered": row.delivered, "read": row.read})
        told = {
            "conversationId": row.conversation_id,
            "seq": row.seq,
            "recordedAt": row.recorded_at,
        }
        match row.change:
            case "started":
                more: dict[str, Any] = {"kind": row.kind, "title": row.title, "owner": row.owner}
                return Reply(201, {**told, **more, "members": row.members})
            case "sent":
                return Reply(201, {**told, "clientMsgId": row.client_msg_id})
            case "members":
                return Reply(200, {**told, "members": row.members})
            case _:
                return Reply(200, {**told, "of": row.of})


def _start(state: State, row: StartConversation, now_ms: int) -> ConversationChanged:
    if row.conversation_id in state["conversations"]:
        raise Rejected("conversation_exists", f"there is a conversation {row.conversation_id}")
    members = _bounded({row.by, *row.members})
    if row.kind == "direct" and len(members) != 2:
        raise Rejected("not_two", "a direct conversation is of two people", status=422)
    before = Conversation(row.kind, row.title, row.by, (), 0, 0)
    return _entry(
        row.conversation_id, before, "started", row.by, now_ms, members=members, added=members
    )


def _members(state: State, row: ChangeMembers, now_ms: int) -> ConversationChanged:
    found = _joined(state, row.conversation_id, row.by)
    if found.kind == "direct":
        raise Rejected("direct", "a conversation of two people stays one of these two")
    if row.by != found.owner and set(row.remove) - {row.by}:
        raise Rejected("not_owner", "only who started a group takes others out of it", status=403)
    members = _bounded({*found.members, *row.add} - {*row.remove})
    added = sorted({*members} - {*found.members})
    removed = sorted({*found.members} - {*members})
    if not added and not removed:
        raise Rejected("no_change", "the members would stay the same")
    return _entry(
        *(row.conversation_id, found, "members", row.by, now_ms),
        members=members,
        added=added,
        removed=removed,
    )


def _send(state: State, row: SendMessage, now_ms: int) -> ConversationChanged:
    found = _joined(state, row.conversation_id, row.by)
    if not 0 <= row.reply_to <= found.last_seq:
        raise Rejected("bad_reply", f"there is no entry {row.reply_to} to answer", status=422)
    return _entry(
        *(row.conversation_id, found, "sent", row.by, now_ms),
        body=_text(row.body),
        client_msg_id=row.client_msg_id,
        reply_to=row.reply_to,
    )


def _change(state: State, row: ChangeMessage, now_ms: int) -> ConversationChanged:
    found = _joined(state, row.conversation_id, row.by)
    author = _author(state, row.conversation_id, row.of)
    if not author:
        detail = f"entry {row.of} is no message, or deleted, or too old to be changed"
        raise Rejected("not_changeable", detail)
    if author != row.by:
        raise Rejected("not_yours", "only who wrote a message changes it", status=403)
    change: ConversationChange = "deleted" if row.body is None else "edited"
    body = "" if row.body is None else _text(row.body)
    return _entry(row.conversation_id, found, change, row.by, now_ms, of=row.of, body=body)


def _receipt(state: State, row: MoveReceipt, now_ms: int) -> ReceiptMoved:
    """Marks only move forward, and not past the end."""
    found = _joined(state, row.conversation_id, row.by)
    delivered, read = state["marks"].get((row.conversation_id, row.by)) or (0, 0)
    read = max(read, min(row.read, found.last_seq))
    delivered = max(delivered, read, min(row.delivered, found.last_seq))
    return ReceiptMoved(row.conversation_id, row.by, delivered, read, now_ms)


def _entry(
    conversation_id: str,
    before: Conversation,
    change: ConversationChange,
    by: str,
    now_ms: int,
    *,
    members: Sequence[str] = (),
    added: Sequence[str] = (),
    removed: Sequence[str] = (),
    **more: Any,
) -> ConversationChanged:
    """The next entry of a conversation."""
    seq = before.last_seq + 1
    told = {"of": 0, "client_msg_id": "", "body": "", "reply_to": 0, **more}
    return ConversationChanged(
        conversation_id=conversation_id,
        seq=seq,
        change=change,
        by=by,
        **told,
        kind=before.kind,
        title=before.title,
        owner=before.owner,
        members=list(members),
        added=list(added),
        removed=list(removed),
        members_seq=seq if change in {"started", "members"} else before.members_seq,
        recorded_at=now_ms,
    )


def _of(found: Conversation | None) -> Conversation:
    if found is None:
        raise Rejected("no_conversation", "there is no such conversation", status=404)
    return found


def _joined(state: State, conversation_id: str, user: str) -> Conversation:
    """A conversation that the user is in. To others it is not told that there is one."""
    found: Conversation = _of(state["conversations"].get(conversation_id))
    if user not in found.members:
        raise Rejected("no_conversation", "there is no such conversation", status=404)
    return found


def _bounded(members: Iterable[str]) -> list[str]:
    found = sorted(members)
    if len(found) > MEMBERS_MAX:
        raise Rejected("group_full", f"a group has at most {MEMBERS_MAX} members")
    return found


def _text(body: str) -> str:
    if not body.strip() or len(body) > BODY_CHARS_MAX:
        detail = f"a message has 1 to {BODY_CHARS_MAX} characters, not all of them blank"
        raise Rejected("bad_body", detail, status=422)
    return body


def _author(state: State, conversation_id: str, seq: int) -> str:
    """Who wrote a message that can be changed; "" where there is none."""
    chunk = state["authors"].get((conversation_id, seq // CHUNK)) or ()
    found: str = chunk[seq % CHUNK] if seq >= 0 and seq % CHUNK < len(chunk) else ""
    return found


def _remember(state: State, row: ConversationChanged) -> None:
    """Who wrote the entry, if it is a message; no longer that of one that was deleted, or is old.

    Every entry takes its place in its chunk; number 0 is nobody's.
    """
    authors, at = state["authors"], (row.conversation_id, row.seq // CHUNK)
    known: tuple[str, ...] = authors.get(at) or ("",) * (row.seq % CHUNK)
    authors[at] = (*known, row.by if row.change == "sent" else "")
    old = (row.conversation_id, at[1] - CHANGEABLE_MIN // CHUNK - 1)
    if old in authors:
        del authors[old]
    if row.change == "deleted":
        gone = (row.conversation_id, row.of // CHUNK)
        chunk = list(authors[gone])
        chunk[row.of % CHUNK] = ""
        authors[gone] = tuple(chunk)
