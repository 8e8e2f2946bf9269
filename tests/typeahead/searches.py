"""Searches, and memory in place of stores, for the tests of typeahead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

import polars as pl

from schemas.typeahead.events import QuerySearched
from sinks.drivers.s3.errors import Changed, Missing
from sinks.typeahead.index import ONE, TERMS

HOUR_MS = 3_600_000
NOON_MS = 1_767_268_800_000
"""The start of an hour, and of a minute."""


def search(number: int, query: str = "godot", **more: Any) -> QuerySearched:
    """A search that counts: each number is another person's."""
    fields: dict[str, Any] = {
        "query_id": f"q-{number}",
        "user_id": f"u-{number}",
        "query": query,
        "finished": True,
        "hits": 1,
        "filters": "",
        "event_time": NOON_MS,
    }
    return QuerySearched(**fields | more)


def terms(scores: Mapping[str, int]) -> pl.DataFrame:
    """Terms with these scores, in searches made just now."""
    names = list(scores)
    values = [score * ONE for score in scores.values()]
    return pl.DataFrame({"term": names, "text": names, "score": values}, schema=TERMS)


class Bucket:
    """Objects in memory, with the conditions of S3."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.gets = 0

    def get(self, key: str) -> tuple[bytes, str]:
        found = self.find(key)
        if found is None:
            raise Missing(key)
        self.gets += 1
        return found

    def find(self, key: str) -> tuple[bytes, str] | None:
        return self.objects.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.objects[key] = content, uuid4().hex

    def swap(self, key: str, content: bytes, etag: str | None) -> str:
        if self.objects.get(key, (b"", None))[1] != etag:
            raise Changed(key)
        self.put(key, content)
        return self.objects[key][1]

    def keys(self, prefix: str) -> Iterable[str]:
        return [key for key in self.objects if key.startswith(prefix)]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)
