"""What is sent to and answered by the routes of conversations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from api.models import Id, Input
from sinks.chat.reader import Entry, Mark, Message

MEMBERS_MAX = 500
BODY_CHARS_MAX = 16_384
SEQ_MAX = 2**53 - 1


def _whole(value: str) -> str:
    """Text may have any character but half a surrogate pair, which is none."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair is not Unicode") from None
    return value


Body = Annotated[str, Field(min_length=1, max_length=BODY_CHARS_MAX), AfterValidator(_whole)]
Seq = Annotated[int, Field(ge=0, le=SEQ_MAX, description="Number of an entry.")]


class NewConversation(Input):
    """A conversation to start; who asks is in it."""

    kind: Literal["direct", "group"] = "group"
    title: Annotated[str, Field(max_length=200), AfterValidator(_whole)] = ""
    members: list[Id] = Field(min_length=1, max_length=MEMBERS_MAX, description="The others.")


class Members(Input):
    """Who comes and who goes."""

    add: list[Id] = Field(default=[], max_length=MEMBERS_MAX)
    remove: list[Id] = Field(default=[], max_length=MEMBERS_MAX)


class NewMessage(Input):
    """Something to say."""

    clientMsgId: Id = Field(  # noqa: N815
        description="Your own id of it. Sent again with the same one, it is the same message."
    )
    body: Body
    replyTo: Seq = 0  # noqa: N815


class NewBody(Input):
    """Another text."""

    body: Body


class Receipt(Input):
    """How far you have received and read; it only moves forward."""

    delivered: Seq
    read: Seq = 0


class Started(BaseModel):
    """A conversation that was started."""

    conversationId: str  # noqa: N815
    seq: int
    recordedAt: int  # noqa: N815
    kind: str
    title: str
    owner: str
    members: list[str]


class Sent(BaseModel):
    """A message that was recorded."""

    conversationId: str  # noqa: N815
    seq: int = Field(description="Its place in the conversation: 1, 2, 3, without a gap.")
    recordedAt: int  # noqa: N815
    clientMsgId: str  # noqa: N815


class Changed(BaseModel):
    """A message that was edited or deleted."""

    conversationId: str  # noqa: N815
    seq: int = Field(description="Number of the entry that says so.")
    recordedAt: int  # noqa: N815
    of: int


class Moved(BaseModel):
    """Who is in it from here on."""

    conversationId: str  # noqa: N815
    seq: int
    recordedAt: int  # noqa: N815
    members: list[str]


class Marked(BaseModel):
    """How far you are."""

    delivered: int
    read: int


class Standing(BaseModel):
    """A conversation as it stands."""

    conversation_id: str
    kind: str
    title: str
    owner: str
    members: list[str]
    last_seq: int
    recorded_ms: int
    marks: list[Mark] = Field(default=[], description="How far everybody is; of one only.")


class Entries(BaseModel):
    """Entries of a conversation, ascending, without a gap."""

    entries: list[Entry]
    more: bool = Field(description="Whether to ask again, from behind the last one.")


class Messages(BaseModel):
    """Messages as they read now, the newest first."""

    messages: list[Message]
    before: int | None = Field(description="`before` of the next page; null on the last.")
