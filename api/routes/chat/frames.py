"""What goes over a socket of chat: JSON objects, one a line, one or more in a message.

From the client:

    open     conversationId, after, position
                                      follow it: the entries behind `after`, then what comes;
                                      without `after`, only what comes. `position`: what a write
                                      answered as Headrace-Position, to be in the history first
    close    conversationId           follow it no longer
    send     conversationId, clientMsgId, body, replyTo
    edit     conversationId, ref, of, body          `ref` is the client's own id of the request
    delete   conversationId, ref, of
    receipt  conversationId, delivered, read        numbers of entries; not answered
    typing   conversationId                         not answered, not logged
    ping

To the client:

    welcome  userId, session, heartbeatMs, log      send something at least so often; numbers of
                                                    another `log` mean nothing ("": not known)
    entry    conversationId, seq, change, by, …     numbers rise by one
    live     conversationId, seq, marks             up to here it was history
    receipt  conversationId, userId, delivered, read   not in large groups: ask for the marks
    typing   conversationId, userId
    joined   conversationId, kind, title            somebody took you in: open it
    left     conversationId                         you are no longer in it
    ack      ref, conversationId, seq               recorded, and read back from the log
    refused  ref, conversationId, status, code, detail
    pong
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
import orjson

from schemas.chat.events import ConversationChanged, ReceiptMoved
from sinks.chat.reader import Entry, Mark

CHARS_MAX: Final = 65_536
"""Of one message of a client."""

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Seq = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class _Frame(msgspec.Struct, tag_field="type", rename="camel", frozen=True, kw_only=True):
    conversation_id: Id


class Open(_Frame, frozen=True, tag="open"):
    """Follow a conversation."""

    after: Seq | None = None
    position: Annotated[str, msgspec.Meta(max_length=512)] = ""


class Close(_Frame, frozen=True, tag="close"):
    """Follow it no longer."""


class Send(_Frame, frozen=True, tag="send"):
    """Say something."""

    client_msg_id: Id
    body: str
    reply_to: Seq = 0


class Edit(_Frame, frozen=True, tag="edit"):
    """Say something else."""

    ref: Id
    of: Seq
    body: str


class Delete(_Frame, frozen=True, tag="delete"):
    """Take it back."""

    ref: Id
    of: Seq


class Receipt(_Frame, frozen=True, tag="receipt"):
    """So far it was received, and read."""

    delivered: Seq
    read: Seq = 0


class Typing(_Frame, frozen=True, tag="typing"):
    """Is writing something."""


class Ping(msgspec.Struct, tag_field="type", tag="ping", frozen=True):
    """Is there."""


Frame = Open | Close | Send | Edit | Delete | Receipt | Typing | Ping
_decoder: msgspec.json.Decoder[Frame] = msgspec.json.Decoder(Frame)


class BadFrame(ValueError):
    """Not a frame; the message says why."""


def parse(line: str) -> Frame:
    """A frame of a client. Raises `BadFrame`."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadFrame(str(error)) from None


def entry(conversation_id: str, one: Entry | ConversationChanged) -> str:
    """An entry, whether it comes from the history or from the log."""
    at_ms = one.recorded_at if isinstance(one, ConversationChanged) else one.recorded_ms
    told = {
        "seq": one.seq,
        "change": one.change,
        "by": one.by,
        "of": one.of,
        "clientMsgId": one.client_msg_id,
        "body": one.body,
        "replyTo": one.reply_to,
        "members": one.members,
        "recordedAt": at_ms,
    }
    return _text("entry", conversationId=conversation_id, **told)


def live(conversation_id: str, seq: int, marks: Sequence[Mark]) -> str:
    """The history is told up to `seq`."""
    told = [{"userId": m.user_id, "delivered": m.delivered, "read": m.read} for m in marks]
    return _text("live", conversationId=conversation_id, seq=seq, marks=told)


def receipt(row: ReceiptMoved) -> str:
    """How far a member is."""
    return _text(
        "receipt",
        conversationId=row.conversation_id,
        userId=row.user_id,
        delivered=row.delivered,
        read=row.read,
    )


def typing(conversation_id: str, user: str) -> str:
    """Somebody is writing."""
    return _text("typing", conversationId=conversation_id, userId=user)


def joined(row: ConversationChanged) -> str:
    """For those who came in."""
    return _text("joined", conversationId=row.conversation_id, kind=row.kind, title=row.title)


def left(conversation_id: str) -> str:
    """For those who went."""
    return _text("left", conversationId=conversation_id)


def welcome(user: str, session: str, heartbeat_ms: int, log: str) -> str:
    """The first frame."""
    return _text("welcome", userId=user, session=session, heartbeatMs=heartbeat_ms, log=log)


def ack(ref: str, conversation_id: str, seq: int) -> str:
    """It is recorded."""
    return _text("ack", ref=ref, conversationId=conversation_id, seq=seq)


def refused(ref: str, conversation_id: str, status: int, code: str, detail: str) -> str:
    """It is not, and will not be if it is sent again as it is."""
    told = {"status": status, "code": code, "detail": detail}
    return _text("refused", ref=ref, conversationId=conversation_id, **told)


PONG: Final = '{"type":"pong"}'


def _text(frame_type: str, **fields: Any) -> str:
    return orjson.dumps({"type": frame_type, **fields}).decode()
