"""Which bytes of which file are new.

A file is known by what it is and not by its name: device, inode, and the hash of its first bytes,
since inodes are given out again. Beside the files that a pattern names, its *siblings* (the name
and something behind it) are looked at, for that is where rotation puts them:

- a sibling that was read under its old name is read to its end;
- a copy of a file that is still at its place (copy and truncate) is read on where the file was,
  under the file's identity, so that what is read of both has the same ids;
- a sibling that is newer than one that was read is a file that came and went while nobody
  looked, and is read whole. Compressed files are not.

A followed file that begins otherwise than before, or is shorter than what was read of it, is read
anew as another generation. Not noticed is a file truncated and filled beyond what was read with
the same first bytes between two looks.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

HEAD_BYTES = 256
"""How much of its beginning tells a file from another; a shorter file has a shorter one."""
CHUNK_BYTES = 256 << 10
LINE_BYTES_MAX = 64 << 10
"""A longer line is cut; its rest is the next line."""
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")


@dataclass(frozen=True)
class Cursor:
    """How far a file is read. `head` is the hash of its first `head_bytes` bytes; `identity` is
    what ids of its lines are made of, besides their place.
    """

    key: str
    """Device and inode."""
    identity: str
    head: str = ""
    head_bytes: int = 0
    byte: int = 0


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a file, with the byte that each begins at; `cursor` is behind the last."""

    path: str
    cursor: Cursor
    lines: Sequence[tuple[int, bytes]]


@dataclass(frozen=True)
class Candidate:
    """A file to read, and from where."""

    path: str
    cursor: Cursor
    modified_ns: int


def candidates(patterns: Sequence[str], known: Mapping[str, Cursor]) -> list[Candidate]:
    """What the patterns name now and the siblings that count, the oldest first: a rotated file is
    read before its successor.
    """
    found: dict[str, Candidate] = {}
    for path in sorted({path for pattern in patterns for path in glob.glob(pattern)}):  # noqa: PTH207
        main = _candidate(path, known)
        if main is None:
            continue
        found.setdefault(main.cursor.key, main)
        for one in _siblings(path, main, known):
            found.setdefault(one.cursor.key, one)
    return sorted(found.values(), key=lambda one: (one.modified_ns, one.path))


def read(one: Candidate, chunk_bytes: int = CHUNK_BYTES) -> Chunk | None:
    """The next whole lines of a file; None where there are none, or it is another file by now. A
    last line without a line feed is left until it is whole.
    """
    try:
        handle = os.open(one.path, os.O_RDONLY)
    except OSError:
        return None
    try:
        if _key(os.fstat(handle)) != one.cursor.key:
            return None
        data = os.pread(handle, chunk_bytes, one.cursor.byte)
        lines = list(_lines(data, one.cursor.byte))
        if not lines:
            return None
        last, text = lines[-1]
        behind = last + len(text)
        cursor = replace(one.cursor, byte=behind)
        if cursor.head_bytes < HEAD_BYTES:
            size = min(HEAD_BYTES, behind)
            cursor = replace(cursor, head=_head(handle, size), head_bytes=size)
        return Chunk(one.path, cursor, [(at, line.rstrip(b"\r\n")) for at, line in lines])
    finally:
        os.close(handle)


def _candidate(path: str, known: Mapping[str, Cursor]) -> Candidate | None:
    """A followed file: on from where it was read, or from its start."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        key = _key(status)
        old = known.get(key)
        if old is None:
            cursor = Cursor(key, _identity(key, status, 0))
        elif status.st_size < old.byte or _head(handle, old.head_bytes) != old.head:
            generation = int(old.identity.rsplit(":", 1)[1]) + 1
            cursor = Cursor(key, _identity(key, status, generation))
        else:
            cursor = old
        return Candidate(path, cursor, status.st_mtime_ns)
    finally:
        os.close(handle)


def _siblings(path: str, main: Candidate, known: Mapping[str, Cursor]) -> Iterator[Candidate]:
    here = [one for name in glob.glob(glob.escape(path) + "?*")  # noqa: PTH207
            if (one := _candidate(name, known)) is not None]  # fmt: skip
    read_before = [one.modified_ns for one in here if one.cursor.key in known]
    of_main = known.get(main.cursor.key)
    for one in here:
        if one.cursor.key in known:
            yield one
        elif of_main is not None and of_main.byte and _begins(one.path, of_main):
            yield replace(one, cursor=replace(of_main, key=one.cursor.key))
        elif any(one.modified_ns > other for other in read_before) and not _compressed(one.path):
            yield one


def _begins(path: str, cursor: Cursor) -> bool:
    """Whether a file begins as the cursor's file did, and holds what was read of it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return (
            os.fstat(handle).st_size >= cursor.byte
            and _head(handle, cursor.head_bytes) == cursor.head
        )
    finally:
        os.close(handle)


def _compressed(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - names of files are text here
            return file.read(8).startswith(_COMPRESSED)
    except OSError:
        return True


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def _identity(key: str, status: os.stat_result, generation: int) -> str:
    """Not of the key alone, since inodes come again: when it was first seen, its status changed
    at that time.
    """
    return f"{key}:{status.st_ctime_ns}:{generation}"


def _head(handle: int, size: int) -> str:
    return hashlib.blake2b(os.pread(handle, size, 0), digest_size=16).hexdigest() if size else ""


def _lines(data: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Lines with their line feeds, and the byte of the file that each begins at."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + LINE_BYTES_MAX)
        if end >= 0:
            stop = end + 1
        elif len(data) - start >= LINE_BYTES_MAX:
            stop = start + LINE_BYTES_MAX
        else:
            return
        yield at + start, data[start:stop]
        start = stop
