"""Snapshots in S3: immutable objects, and one pointer to the one that answers.

    typeahead-snapshots/live.json      the pointer, moved by compare-and-set
    typeahead-snapshots/<id>.arrow     a snapshot (`index`)

A build that fails anywhere before the last step leaves the pointer where it was, so the stale
snapshot goes on answering. Of builds at the same time one moves the pointer and the others fail.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import msgspec
import uuid_utils

from sinks.typeahead.index import BadSnapshot, Index

NAME = "typeahead-snapshots"
SHRUNK_MAX = 0.5
"""A snapshot that has lost more than half of its terms is taken to be a failed build."""


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """Which snapshot answers, and what it was built from."""

    id: str
    digest: str
    """Of the file's bytes: the same terms and scores make the same digest."""
    terms: int
    as_of_ms: int
    """The newest hour that was counted."""
    positions: Mapping[str, int]
    """`topic/partition` → the first offset that is not in it."""
    previous: str = ""

    @property
    def built_ms(self) -> int:
        """When it was put in place, by the clock of who did; its id (UUIDv7) begins with that."""
        return uuid.UUID(self.id).int >> 80


class Refused(Exception):
    """The snapshot is not put in place of the one that answers; the message says why."""


class Objects(Protocol):
    """What is needed of a bucket; `sinks.drivers.s3.bucket.Bucket` has it."""

    def get(self, key: str) -> tuple[bytes, str]: ...
    def find(self, key: str) -> tuple[bytes, str] | None: ...
    def put(self, key: str, content: bytes) -> None: ...
    def swap(self, key: str, content: bytes, etag: str | None) -> str: ...
    def keys(self, prefix: str) -> Iterable[str]: ...
    def delete(self, keys: Iterable[str]) -> None: ...


class Snapshots:
    """The snapshots in one bucket. Synchronous; raises `SinkError` where the store does."""

    def __init__(self, objects: Objects, name: str = NAME) -> None:
        self._objects = objects
        self._name = name
        self._live = f"{name}/live.json"

    def live(self) -> tuple[Pointer, str] | None:
        """The pointer and its ETag; None before the first snapshot."""
        found = self._objects.find(self._live)
        return None if found is None else (msgspec.json.decode(found[0], type=Pointer), found[1])

    def publish(
        self,
        file: bytes,
        *,
        terms: int,
        as_of_ms: int,
        positions: Mapping[str, int],
        over: tuple[Pointer, str] | None,
        force: bool = False,
    ) -> Pointer:
        """Put a snapshot in place of `over`, which answers now, and delete those that nobody reads
        any more. Raises `Refused` where it has nothing, or less than half of what `over` has and
        there is no `force`; `Changed` where another build came first.
        """
        before, etag = over or (None, None)
        if not terms:
            raise Refused("there is nothing to suggest in it")
        if before is not None and terms < before.terms * SHRUNK_MAX and not force:
            raise Refused(f"it has {terms:,} terms, the one that answers {before.terms:,}")
        litter = [key for key in self._objects.keys(f"{self._name}/") if key.endswith(".arrow")]
        pointer = Pointer(
            id=str(uuid_utils.uuid7()),
            digest=digest(file),
            terms=terms,
            as_of_ms=as_of_ms,
            positions=dict(sorted(positions.items())),
            previous="" if before is None else before.id,
        )
        self._objects.put(self._key(pointer.id), file)
        self._objects.swap(self._live, msgspec.json.encode(pointer), etag)
        kept = {self._key(pointer.id), self._key(pointer.previous)}
        self._objects.delete(key for key in litter if key not in kept)
        return pointer

    def open(self, pointer: Pointer, folder: Path) -> Index:
        """The snapshot, mapped from a file in `folder`, which is fetched where it is not there.
        What other snapshots left in the folder is deleted; who has them mapped keeps them.

        Raises `BadSnapshot` where the object is not what the pointer says.
        """
        file = folder / f"{pointer.digest}.arrow"
        if not file.is_file():
            content, _ = self._objects.get(self._key(pointer.id))
            if digest(content) != pointer.digest:
                raise BadSnapshot(f"{pointer.id} is not the snapshot that was written")
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{uuid.uuid4().hex}.part"
            part.write_bytes(content)
            part.replace(file)
        index = Index(file)
        for other in folder.glob("*.arrow"):
            if other != file:
                with suppress(FileNotFoundError):
                    other.unlink()
        return index

    def _key(self, name: str) -> str:
        return f"{self._name}/{name}.arrow"


def digest(file: bytes) -> str:
    """What a snapshot's bytes are compared by."""
    return blake2b(file, digest_size=16).hexdigest()
