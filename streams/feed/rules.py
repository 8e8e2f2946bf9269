"""What may be said about posts and relations. An author has one writer, so a post is there once,
and only who wrote it takes it away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.feed.events import (
    CHANGE_RELATION,
    POST_PUBLISHED,
    POST_REMOVED,
    PUBLISH_POST,
    RELATION_CHANGED,
    REMOVE_POST,
    FeedOpened,
    PostPublished,
    PostRemoved,
    RelationChanged,
)
from streams.runtime.decider.rules import Command, Event, Rejected, Reply, State, Timer


class FeedRules:
    """Pure; see `streams.runtime.decider.rules.Rules`. Remembers who wrote which post; whether
    someone follows already is for the fold, where to say it twice changes nothing.
    """

    version = 1
    tables: Mapping[str, Any] = {"posts": str}

    def decide(self, state: State, command: Command) -> Any:
        row = command.row
        match command.record:
            case PUBLISH_POST.fullname:
                if row.post_id in state["posts"]:
                    raise Rejected("post_exists", "there is a post of that id")
                return PostPublished(
                    row.author, row.post_id, row.text, row.media_url, row.event_time
                )
            case REMOVE_POST.fullname:
                if state["posts"].get(row.post_id) != row.author:
                    raise Rejected("no_post", "you have no such post", status=404)
                return PostRemoved(row.author, row.post_id, row.event_time)
            case CHANGE_RELATION.fullname:
                if row.user == row.author:
                    raise Rejected("yourself", "that is yourself", status=422)
                return RelationChanged(row.author, row.user, row.change, row.event_time)
            case _:
                return FeedOpened(row.author, row.user, row.event_time)

    def expire(self, state: State, timer: Timer) -> Any:
        raise TypeError(f"nothing is timed here: {timer}")

    def evolve(self, state: State, event: Event) -> None:
        if event.record == POST_PUBLISHED.fullname:
            state["posts"][event.row.post_id] = event.row.author
        elif event.record == POST_REMOVED.fullname:
            del state["posts"][event.row.post_id]

    def reply(self, event: Event) -> Reply:
        row = event.row
        match event.record:
            case POST_PUBLISHED.fullname:
                told = {
                    "postId": row.post_id,
                    "author": row.author,
                    "text": row.text,
                    "mediaUrl": row.media_url,
                    "eventTime": row.event_time,
                }
                return Reply(201, told)
            case RELATION_CHANGED.fullname:
                return Reply(200, {"user": row.user, "author": row.author, "change": row.change})
            case _:
                return Reply(200, {"eventTime": row.event_time})
