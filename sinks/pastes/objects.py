"""Contents in the object store. An object is written once under a name of its own, and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from sinks.drivers.s3.bucket import Bucket, connect
from streams.runtime.settings import Settings

PREFIX: Final = "pastes/"


class Objects(Protocol):
    """A store of contents. All raise `SinkError` where it does not answer or refuses."""

    async def put(self, name: str, content: bytes) -> None:
        """Keep a content; it is durable when this returns."""
        ...

    async def get(self, name: str) -> bytes | None:
        """A content; None where there is none of that name."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a content; no error where there is none."""
        ...

    async def names(self) -> list[str]:
        """The names of all contents."""
        ...


class S3Objects:
    """`Objects` in a bucket, under a prefix."""

    def __init__(self, bucket: Bucket, prefix: str = PREFIX) -> None:
        self._bucket = bucket
        self._prefix = prefix

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[S3Objects]:
        """In the bucket of the settings, which must be there. Sends nothing."""
        bucket = connect(settings.s3)
        try:
            yield cls(bucket)
        finally:
            bucket.close()

    async def put(self, name: str, content: bytes) -> None:
        """As `Objects.put`."""
        await asyncio.to_thread(self._bucket.put, self._prefix + name, content)

    async def get(self, name: str) -> bytes | None:
        """As `Objects.get`."""
        found = await asyncio.to_thread(self._bucket.find, self._prefix + name)
        return None if found is None else found[0]

    async def delete(self, name: str) -> None:
        """As `Objects.delete`."""
        await asyncio.to_thread(self._bucket.delete, [self._prefix + name])

    async def names(self) -> list[str]:
        """As `Objects.names`."""

        def listed() -> list[str]:
            return [key.removeprefix(self._prefix) for key in self._bucket.keys(self._prefix)]

        return await asyncio.to_thread(listed)
