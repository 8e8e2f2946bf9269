"""The news feed: posts, whom one follows, mutes and blocks, and what there is to read.

Everybody writes and reads as themselves: the subject of the token is the user.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from http import HTTPStatus
from itertools import count
from typing import Annotated, Literal, Protocol, TypeVar

import msgspec
import uuid_utils
from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api import ingest
from api.auth import READ, WRITE, Principal, requires
from api.commands import VERDICT, AskedDep, ask
from api.json_route import JsonRoute
from api.models import Id, Input, Instant, QueryInstant, clean_text
from api.positions import AppliedSource
from api.problem import InputError, Problem, invalid, responses
from api.reads import fresh
from api.services import Services, ServicesDep
from connectors.producer import ProducerError
from schemas.feed import events
from sinks.feed import reader as store
from sinks.readers.redis import Entry
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.kafka import partition_of

TEXT_CHARS_MAX = 5_000
PAGE_MAX = 100
AHEAD_MS_MAX = events.EVENTS.future_skew_ms // 2
"""A time further ahead of this clock is refused; the log's clock may differ by as much again."""


def _prose(text: str) -> str:
    """Text in which lines may end; refuses other control characters."""
    clean_text(text.translate({ord("\n"): " ", ord("\t"): " "}))
    return text


class NewPost(Input):
    """A post."""

    model_config = ConfigDict(alias_generator=to_camel)

    text: Annotated[str, Field(min_length=1, max_length=TEXT_CHARS_MAX), AfterValidator(_prose)]
    media_url: (
        Annotated[str, Field(max_length=2_048, pattern=r"^https?://[\x21-\x7e]+$")] | None
    ) = Field(default=None, description="A picture or film that belongs to it.")
    event_time: Instant | None = Field(
        default=None, description="When it was written: its place in feeds. Now if left out."
    )


class Post(BaseModel):
    """A post as it is shown."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)

    post_id: str
    author: str
    text: str
    media_url: str | None
    event_time: datetime


class Feed(BaseModel):
    """A page of a feed."""

    posts: list[Post]
    next: str | None = Field(description="Send it as `cursor` for the next page; null at the end.")


class FeedReads(AppliedSource, Protocol):
    """What is asked of feeds; `sinks.feed.reader.FeedReader` answers."""

    async def post(self, post_id: str) -> store.Post | None:
        """A post; None where there is none, or none any more."""
        ...

    async def following(self, user: str) -> list[str]:
        """Whom a user follows."""
        ...

    async def newest(self, user: str, limit: int, before: Entry | None = None) -> store.Page:
        """A page of the feed, newest first."""
        ...

    async def ranked(
        self, user: str, limit: int, place: store.RankedPlace | None = None
    ) -> store.Page:
        """A page of the ranked feed."""
        ...


ReadsDep = Annotated[FeedReads, Depends(fresh("feed", events.EVENTS))]
PostId = Annotated[Id, Path(description="The post.")]
Other = Annotated[Id, Path(description="Who is meant.")]
Time = Annotated[
    QueryInstant | None, Query(alias="eventTime", description="When; now if left out.")
]

writes = APIRouter(
    prefix="/v1",
    tags=["feed"],
    route_class=JsonRoute,
    dependencies=[requires(WRITE)],
    responses={**VERDICT, **responses(400, 404, 409, 413, 415)},
)


@writes.post("/posts", status_code=201, response_model=Post)
async def publish(
    new: NewPost,
    services: ServicesDep,
    asked: AskedDep,
    principal: Annotated[Principal, requires(WRITE)],
) -> Response:
    """Publish a post. With an `Idempotency-Key` a repeat gets the same one."""
    row = events.PublishPost(
        author=principal.subject,
        post_id=asked.new_id("post"),
        text=new.text,
        media_url=new.media_url,
        event_time=_time(new.event_time),
    )
    return await ask(services, asked, events.COMMANDS, events.PUBLISH_POST.name, row)


@writes.delete("/posts/{post_id}")
async def remove(
    post_id: PostId,
    services: ServicesDep,
    asked: AskedDep,
    principal: Annotated[Principal, requires(WRITE)],
) -> Response:
    """Take a post of your own away; it is gone from every feed."""
    row = events.RemovePost(principal.subject, post_id, _time(None))
    return await ask(services, asked, events.COMMANDS, events.REMOVE_POST.name, row)


def _changing(change: events.RelationChange) -> Callable[..., Awaitable[Response]]:
    """The route that changes a relation so."""

    async def route(
        user: Other,
        services: ServicesDep,
        asked: AskedDep,
        principal: Annotated[Principal, requires(WRITE)],
        event_time: Time = None,
    ) -> Response:
        row = events.ChangeRelation(user, principal.subject, change, _time(event_time))
        return await ask(services, asked, events.COMMANDS, events.CHANGE_RELATION.name, row)

    return route


_RELATIONS: tuple[tuple[str, str, str, events.RelationChange, str], ...] = (
    ("PUT", "follows", "follow", "followed", "Their newest posts come into your feed."),
    ("DELETE", "follows", "unfollow", "unfollowed", "Their posts leave your feed."),
    ("PUT", "mutes", "mute", "muted", "You follow them, if you do, and do not see them."),
    ("DELETE", "mutes", "unmute", "unmuted", "You see them again."),
    ("PUT", "blocks", "block", "blocked", "Neither sees the other; you follow them no longer."),
    ("DELETE", "blocks", "unblock", "unblocked", "You see each other again."),
)
for _method, _relation, _verb, _change, _says in _RELATIONS:
    _route = _changing(_change)
    _route.__name__, _route.__doc__ = _verb, _says
    writes.add_api_route(f"/{_relation}/{{user}}", _route, methods=[_method])

router = APIRouter(
    prefix="/v1",
    tags=["feed"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("/posts/{post_id}", response_model=Post, responses=responses(404))
async def post(
    post_id: PostId, source: ReadsDep, _: Annotated[Principal, requires(READ)]
) -> store.Post:
    """A post."""
    found = await source.post(post_id)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-post", "there is no such post")
    return found


@router.get("/follows")
async def following(source: ReadsDep, principal: Annotated[Principal, requires(READ)]) -> list[str]:
    """Whom you follow."""
    return await source.following(principal.subject)


@dataclass(frozen=True)
class Asked:
    """Which page of which order."""

    order: Literal["newest", "ranked"]
    cursor: str | None
    limit: int


async def page(
    order: Annotated[
        Literal["newest", "ranked"],
        Query(description="`ranked` puts posts of one author apart, and ends after 200."),
    ] = "newest",
    cursor: Annotated[str | None, Query(max_length=4_096, description="`next` of a page.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX, description="Posts of a page.")] = 20,
) -> Asked:
    """Dependency: the page that is wanted."""
    return Asked(order, cursor, limit)


@router.get("/feed")
async def feed(
    source: ReadsDep,
    services: ServicesDep,
    principal: Annotated[Principal, requires(READ)],
    asked: Annotated[Asked, Depends(page)],
) -> Feed:
    """Your feed. New posts move no page: a page is what is behind the one before it."""
    user = principal.subject
    if asked.order == "newest":
        found = await source.newest(user, asked.limit, _placed(asked.cursor, Entry))
    else:
        found = await source.ranked(user, asked.limit, _placed(asked.cursor, store.RankedPlace))
    if asked.cursor is None and found.unnoted:
        await _note(services, user, found.unnoted)
    posts = [Post.model_validate(one) for one in found.posts]
    return Feed(posts=posts, next=None if found.next is None else _cursor(found.next))


def _time(given: int | None) -> int:
    """The time of an event; 422 for one that the log would not take for true."""
    now_ms = time.time_ns() // 1_000_000
    if given is not None and given > now_ms + AHEAD_MS_MAX:
        detail = "eventTime is in the future"
        raise invalid(detail, InputError(detail=detail, parameter="eventTime"))
    return now_ms if given is None else given


P = TypeVar("P", Entry, store.RankedPlace)


def _placed(cursor: str | None, kind: type[P]) -> P | None:
    """Where a page begins; 422 for what was no `next` of the same order."""
    if cursor is None:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode()), type=kind)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        detail = "not a cursor of an earlier page of this order"
        raise invalid(detail, InputError(detail=detail, parameter="cursor")) from None


def _cursor(place: Entry | store.RankedPlace) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


async def _note(services: Services, user: str, partitions: Sequence[int]) -> None:
    """Say that the user is active. Nobody waits for it, and the next read says it again."""
    headers = envelope_headers(Envelope(correlation_id=str(uuid_utils.uuid7()), subject=user))
    for partition in partitions:
        row = events.OpenFeed(_lane(partition), user, _time(None))
        with suppress(ProducerError):
            await services.producer.send(events.COMMANDS.name, events.OPEN_FEED.name, row, headers)


@cache
def _lane(partition: int) -> str:
    """A name that lies in the partition."""
    names = (f"lane-{n}" for n in count())
    return next(n for n in names if partition_of(n, events.COMMANDS.partitions) == partition)
