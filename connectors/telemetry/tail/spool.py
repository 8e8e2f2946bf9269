"""A bounded first-in-first-out buffer on disk that survives `kill -9` at any instruction.

Segments `00000000000000000001.log` hold frames behind each other:

    length (4 bytes, big-endian) · CRC-32 of the payload (4 bytes) · payload

An append is one `write`, followed by `fdatasync`. Opening cuts off a frame that is not whole: it
was never acknowledged. `commit` writes the place up to which frames are done to a file beside
them, by rename; whole segments below it are deleted. Frames behind it come again after a crash.

One process at a time: the folder is locked. In it one thread may append while another reads and
commits.
"""

from __future__ import annotations

import fcntl
import os
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

SEGMENT_BYTES = 16 << 20
BYTES_MAX = 512 << 20
FRAME_BYTES_MAX = 16 << 20
_HEADER = 8


class SpoolError(Exception):
    """The folder cannot be used; the message says why."""


class SpoolFull(Exception):
    """There is no room until something is committed. Nothing was appended."""


@dataclass(frozen=True, order=True)
class Place:
    """Where a frame begins: segment and byte."""

    segment: int
    byte: int


@dataclass(frozen=True)
class Frame:
    """A payload, and the place behind it: what to commit when it is done."""

    payload: bytes
    behind: Place


class Spool:
    """Use as a context manager."""

    def __init__(
        self, folder: Path, bytes_max: int = BYTES_MAX, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._bytes_max = bytes_max
        self._segment_bytes = segment_bytes
        self._mutex = threading.Lock()
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SpoolError(f"{folder}: another process uses it") from None
        self._done = self._read_done()
        self._sizes = {self._number(path): path.stat().st_size for path in self._paths()}
        self._last = self._recovered()
        self._file = os.open(self._path(self._last), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._sync_folder()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder."""
        os.close(self._file)
        os.close(self._lock)

    @property
    def done(self) -> Place:
        """Up to where frames are done with."""
        return self._done

    @property
    def bytes_held(self) -> int:
        """Bytes of all segments."""
        with self._mutex:
            return sum(self._sizes.values())

    @property
    def full(self) -> bool:
        """Whether an append would be refused."""
        return self.bytes_held >= self._bytes_max

    @property
    def begins_segment(self) -> bool:
        """Whether the next frame is the first of its segment: the ones before may be deleted."""
        return not 0 < self._sizes[self._last] < self._segment_bytes

    def append(self, payload: bytes) -> Place:
        """Add a frame; returns when it is on disk. Raises `SpoolFull`."""
        if len(payload) > FRAME_BYTES_MAX:
            raise ValueError(f"a frame may have {FRAME_BYTES_MAX} bytes, not {len(payload)}")
        if self.full:
            raise SpoolFull(f"{self.bytes_held} bytes are held")
        if self._sizes[self._last] >= self._segment_bytes:
            self._roll()
        frame = len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload
        try:
            written = os.write(self._file, frame)
            os.fdatasync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._sizes[self._last])
            raise SpoolFull(f"the disk refuses: {error.strerror}") from error
        if written != len(frame):  # the disk is full: take the half back
            os.ftruncate(self._file, self._sizes[self._last])
            raise SpoolFull("the disk is full")
        with self._mutex:
            self._sizes[self._last] += written
        return Place(self._last, self._sizes[self._last])

    def frames(self, after: Place | None = None) -> Iterator[Frame]:
        """Frames behind a place (the committed one by default), in order, up to now."""
        start = self._done if after is None else after
        with self._mutex:
            segments = sorted(number for number in self._sizes if number >= start.segment)
        for segment in segments:
            at = start.byte if segment == start.segment else 0
            yield from _frames(self._path(segment), segment, at)

    def commit(self, behind: Place) -> None:
        """Everything before this place is done with."""
        if behind <= self._done:
            return
        fresh = self._folder / "done.new"
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(behind))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._folder / "done")
        self._sync_folder()
        self._done = behind
        with self._mutex:
            gone = [number for number in self._sizes if number < behind.segment]
            for segment in gone:
                del self._sizes[segment]
        for segment in gone:
            self._path(segment).unlink()

    def _roll(self) -> None:
        os.close(self._file)
        with self._mutex:
            self._last += 1
            self._sizes[self._last] = 0
        self._file = os.open(self._path(self._last), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._sync_folder()

    def _recovered(self) -> int:
        """The last segment, cut behind its last whole frame. Segments are never below `done`."""
        last = max((*self._sizes, self._done.segment, 1))
        path = self._path(last)
        whole = 0
        if path.exists():
            for frame in _frames(path, last, 0):
                whole = frame.behind.byte
            if whole < path.stat().st_size:
                os.truncate(path, whole)
        self._sizes[last] = whole
        for segment in [number for number in self._sizes if number < self._done.segment]:
            self._path(segment).unlink()
            del self._sizes[segment]
        return last

    def _read_done(self) -> Place:
        try:
            return msgspec.json.decode((self._folder / "done").read_bytes(), type=Place)
        except FileNotFoundError:
            return Place(0, 0)
        except msgspec.DecodeError as error:
            raise SpoolError(f"{self._folder / 'done'}: {error}") from error

    def _paths(self) -> Iterator[Path]:
        return self._folder.glob("[0-9]" * 20 + ".log")

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:020}.log"

    @staticmethod
    def _number(path: Path) -> int:
        return int(path.stem)

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _frames(path: Path, segment: int, at: int) -> Iterator[Frame]:
    """Whole frames of a segment from a byte on; ends at the first that is not."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(at)
        while len(header := file.read(_HEADER)) == _HEADER:
            length = int.from_bytes(header[:4], "big")
            if length > FRAME_BYTES_MAX:
                return
            payload = file.read(length)
            if len(payload) < length or zlib.crc32(payload) != int.from_bytes(header[4:], "big"):
                return
            at += _HEADER + length
            yield Frame(payload, Place(segment, at))
