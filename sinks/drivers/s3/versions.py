"""The versions of a read model: which there are, which is live, which is sealed.

A version is one object that lists its log partitions, and a manifest for each. Both are replaced
by compare-and-set only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from sinks.drivers.s3 import names
from sinks.drivers.s3.bucket import Bucket
from sinks.drivers.s3.errors import Changed
from sinks.drivers.s3.manifest import Live, Manifest, VersionFile
from streams.runtime.sink import FenceRefused, SinkUnavailable

TRIES = 20
"""Replacements of one object that may come between, before a call gives up."""


@dataclass(frozen=True)
class Stored:
    """A manifest as it is stored, and what its replacement has to name."""

    manifest: Manifest
    etag: str


@dataclass(frozen=True)
class Versions:
    """The versions of one model in a bucket."""

    bucket: Bucket
    model: str

    def live(self) -> int:
        """The version that answers; 1 when none is set."""
        found = self.bucket.find(names.live(self.model))
        return 1 if found is None else Live.decode(found[0]).version

    def switch(self, version: int) -> None:
        """Make it the live one."""
        self.bucket.put(names.live(self.model), msgspec.json.encode(Live(version)))

    def all(self) -> list[int]:
        """The versions that there are, ascending."""
        found = self.bucket.folders(f"{self.model}/")
        numbers = sorted(int(name[1:]) for name in found if name[:1] == "v" and name[1:].isdigit())
        return [version for version in numbers if self.facts(version) is not None]

    def facts(self, version: int) -> VersionFile | None:
        """What is known of a version; None where there is none."""
        found = self.bucket.find(names.version_file(self.model, version))
        return None if found is None else VersionFile.decode(found[0])

    def create(self, version: int) -> VersionFile:
        """The facts, of a new version where there is none."""
        return self._restated(version, lambda facts: facts)

    def look(self, version: int, topic: str, partition: int) -> Stored | None:
        """The manifest of a log partition. Raises `FenceRefused` while it is sealed, or all is."""
        facts = self.facts(version)
        if facts is None:
            return None
        stored = self._stored(version, facts, topic, partition)
        if facts.sealed or (stored is not None and stored.manifest.sealed):
            raise FenceRefused(f"{self.model} v{version} is sealed")
        return stored

    def open(self, version: int, topic: str, partition: int) -> Stored | None:
        """The manifest, written without a position where there is none; None when the version
        went meanwhile. The partition is listed first, so that a seal knows all there can be.
        """

        def listed(facts: VersionFile) -> VersionFile:
            if facts.sealed:
                raise FenceRefused(f"{self.model} v{version} is sealed")
            partitions = tuple(sorted({*facts.partitions, (topic, partition)}))
            return msgspec.structs.replace(facts, partitions=partitions)

        facts = self._restated(version, listed)
        key = names.manifest(self.model, version, topic, partition)
        found = self.bucket.find(key)
        if found is None or Manifest.decode(found[0]).born != facts.born:
            with suppress(Changed):
                self.bucket.swap(key, Manifest(facts.born).encode(), found and found[1])
        return self.look(version, topic, partition)

    def swap(self, version: int, at: tuple[str, int], new: Manifest, old: Stored) -> Stored:
        """Replace a manifest. Raises `Changed` with nothing written when `old` is past."""
        key = names.manifest(self.model, version, *at)
        return Stored(new, self.bucket.swap(key, new.encode(), old.etag))

    def manifests(self, version: int) -> dict[tuple[str, int], Manifest]:
        """By topic and partition, what is stored of a version, sealed or not."""
        facts = self.facts(version)
        if facts is None:
            return {}
        stored = {at: self._stored(version, facts, *at) for at in facts.partitions}
        return {at: one.manifest for at, one in stored.items() if one is not None}

    def seal(self, version: int) -> None:
        """Two steps: no partition can be listed any more; then each listed one is closed."""
        facts = self._restated(version, lambda one: msgspec.structs.replace(one, sealed=True))
        for at in facts.partitions:
            self._mark(version, facts, at, sealed=True)

    def unseal(self, version: int) -> None:
        """Partitions first: a writer believes no manifest while its version is sealed."""
        facts = self.facts(version)
        if facts is not None:
            for at in facts.partitions:
                self._mark(version, facts, at, sealed=False)
            self._restated(version, lambda one: msgspec.structs.replace(one, sealed=False))

    def drop(self, version: int) -> None:
        """Delete all of a sealed version, the facts last: until then it can be dropped again."""
        facts = names.version_file(self.model, version)
        keys = self.bucket.keys(names.folder(self.model, version))
        self.bucket.delete(key for key in keys if key != facts)
        self.bucket.delete([facts])

    def _stored(
        self, version: int, facts: VersionFile, topic: str, partition: int
    ) -> Stored | None:
        """A manifest of a version of this number that was dropped before is none."""
        found = self.bucket.find(names.manifest(self.model, version, topic, partition))
        if found is None:
            return None
        stored = Stored(Manifest.decode(found[0]), found[1])
        return stored if stored.manifest.born == facts.born else None

    def _restated(self, version: int, change: Callable[[VersionFile], VersionFile]) -> VersionFile:
        key = names.version_file(self.model, version)
        for _ in range(TRIES):
            found = self.bucket.find(key)
            old = None if found is None else VersionFile.decode(found[0])
            new = change(old or VersionFile())
            if new == old:
                return new
            with suppress(Changed):
                self.bucket.swap(key, new.encode(), found and found[1])
                return new
        raise SinkUnavailable(f"{key} never stood still")

    def _mark(self, version: int, facts: VersionFile, at: tuple[str, int], *, sealed: bool) -> None:
        """Close a manifest or open it; one that is not there is written so."""
        key = names.manifest(self.model, version, *at)
        for _ in range(TRIES):
            found = self.bucket.find(key)
            old = Manifest(facts.born) if found is None else Manifest.decode(found[0])
            if old.born != facts.born:
                old = Manifest(facts.born)
            elif found is not None and old.sealed == sealed:
                return
            new = msgspec.structs.replace(old, sealed=sealed, seq=old.seq + 1)
            with suppress(Changed):
                self.bucket.swap(key, new.encode(), found and found[1])
                return
        raise SinkUnavailable(f"{key} never stood still")
