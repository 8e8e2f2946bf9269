"""Where snapshots are kept: objects by name, in a folder or in an S3 bucket."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Protocol
from urllib.parse import urlsplit

from minio import Minio
from minio.error import S3Error
from urllib3.exceptions import HTTPError

from streams.runtime.settings import S3, Snapshots

PIECE_BYTES = 1 << 20
_PART_BYTES = 16 << 20


class StoreUnavailable(ConnectionError):
    """The store does not answer, or refuses; what was asked for may or may not have happened."""


class NoSnapshot(LookupError):
    """Nothing of that name."""


class SnapshotStore(Protocol):
    """Objects by name (`a/b/c`). Every method may raise `StoreUnavailable`."""

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        """Store all pieces under the name, at once or not at all; returns the bytes."""
        ...

    def get(self, name: str) -> Iterator[bytes]:
        """The content in pieces. Raises `NoSnapshot`."""
        ...

    def list(self, prefix: str) -> list[str]:
        """The names that begin with `prefix`, in order."""
        ...

    def delete(self, name: str) -> None:
        """Forget a name; nothing happens if there is none."""
        ...


@dataclass(frozen=True)
class LocalStore:
    """Files in a folder: for one machine, and for tests."""

    folder: Path

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        target = self.folder / name
        draft = target.with_name(f"{target.name}.{os.getpid()}.draft")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            draft.replace(target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise StoreUnavailable(str(error)) from error
        return size

    def get(self, name: str) -> Iterator[bytes]:
        try:
            with (self.folder / name).open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except FileNotFoundError as error:
            raise NoSnapshot(name) from error
        except OSError as error:
            raise StoreUnavailable(str(error)) from error

    def list(self, prefix: str) -> list[str]:
        within = self.folder / prefix.rpartition("/")[0]
        files = [path for path in within.rglob("*") if path.is_file() and path.suffix != ".draft"]
        names = (path.relative_to(self.folder).as_posix() for path in files)
        return sorted(name for name in names if name.startswith(prefix))

    def delete(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


class S3Store:
    """Objects in a bucket, which is made when it is missing."""

    def __init__(self, s3: S3, bucket: str) -> None:
        url = urlsplit(s3.url)
        self._bucket = bucket
        self._made = False
        self._client = Minio(
            url.netloc,
            access_key=s3.access_key.get_secret_value() or None,
            secret_key=s3.secret_key.get_secret_value() or None,
            secure=url.scheme == "https",
            region="us-east-1",
        )

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        with SpooledTemporaryFile(max_size=_PART_BYTES) as spool:
            for piece in pieces:
                spool.write(piece)
            size = spool.tell()
            spool.seek(0)
            try:
                self._make()
                self._client.put_object(self._bucket, name, spool, size, part_size=_PART_BYTES)  # type: ignore[arg-type,unused-ignore]
            except (S3Error, HTTPError) as error:
                raise StoreUnavailable(str(error)) from error
        return size

    def get(self, name: str) -> Iterator[bytes]:
        try:
            answer = self._client.get_object(self._bucket, name)
            try:
                yield from answer.stream(PIECE_BYTES)
            finally:
                answer.close()
                answer.release_conn()
        except S3Error as error:
            if error.code in {"NoSuchKey", "NoSuchBucket"}:
                raise NoSnapshot(name) from error
            raise StoreUnavailable(str(error)) from error
        except HTTPError as error:
            raise StoreUnavailable(str(error)) from error

    def list(self, prefix: str) -> list[str]:
        try:
            found = self._client.list_objects(self._bucket, prefix, recursive=True)
            return sorted(one.object_name for one in found)
        except S3Error as error:
            if error.code == "NoSuchBucket":
                return []
            raise StoreUnavailable(str(error)) from error
        except HTTPError as error:
            raise StoreUnavailable(str(error)) from error

    def delete(self, name: str) -> None:
        try:
            self._client.remove_object(self._bucket, name)
        except (S3Error, HTTPError) as error:
            raise StoreUnavailable(str(error)) from error

    def _make(self) -> None:
        if self._made:
            return
        if not self._client.bucket_exists(self._bucket):
            try:
                self._client.make_bucket(self._bucket)
            except S3Error as error:  # somebody else was faster
                if error.code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
                    raise
        self._made = True


class MemoryStore:
    """Objects in memory, for tests."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, pieces: Iterable[bytes]) -> int:
        self.objects[name] = b"".join(pieces)
        return len(self.objects[name])

    def get(self, name: str) -> Iterator[bytes]:
        if name not in self.objects:
            raise NoSnapshot(name)
        with io.BytesIO(self.objects[name]) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self.objects if name.startswith(prefix))

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)


def open_store(snapshots: Snapshots, s3: S3, folder: Path) -> SnapshotStore:
    """The store that the settings name; `folder` is the default of the local one."""
    if snapshots.store == "s3":
        return S3Store(s3, snapshots.bucket)
    return LocalStore(snapshots.folder or folder)
