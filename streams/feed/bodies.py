"""Events → what posts say, until they are removed."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from schemas.feed.events import POST_PUBLISHED, POST_REMOVED
from sinks import feed as store
from streams.runtime.batch import Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Delete, Upsert


class KeepPosts:
    """Posts as they are shown, until they are removed. An id is published once, then removed."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        posts, removed = batch.of(POST_PUBLISHED.fullname), batch.of(POST_REMOVED.fullname)
        there = posts.join(removed, on="post_id", how="anti").select(*store.POSTS.columns)
        changes: list[Changes] = []
        if there.height:
            changes.append(Upsert(store.POSTS, there))
        if removed.height:
            changes.append(Delete(store.POSTS, removed.select("post_id")))
        told = posts.height + removed.height
        return None, Outcome(changes, {Fate.APPLIED: told, Fate.FILTERED: batch.height - told})

    def provisional(self, state: None) -> list[Changes]:
        return []
