"""The rows of the last write of a lane, as one piece, until they are all in their tables.

Written before the fence moves. Whoever finds a fence whose rows are not all stored brings the
write to its end from here; the stamp makes that harmless, however many do it.
"""

from __future__ import annotations

from cassandra.query import BatchStatement, BatchType

from sinks.drivers.cassandra.fences import END_OF_STAMPS, Fence, Lane
from sinks.drivers.cassandra.store import Store

CHUNK_BYTES = 1_000_000


def chunks(data: bytes) -> list[bytes]:
    """The pieces that the data is stored in."""
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def put(store: Store, lane: Lane, seen: Fence, new: Fence, parts: list[bytes]) -> None:
    """Store the rows of the write that will move the fence from `seen` to `new`.

    On the way, what no fence will ever speak of again goes: writes to below `seen`. One *to*
    `seen` may be another writer's flush, still on its way.
    """
    if not parts or new.position is None:
        return
    upto = new.position.next_offset
    insert = store.prepared(
        "INSERT INTO $journal (build, topic, partition, upto, nonce, chunk, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
    )
    rows = [(*lane.key, upto, new.nonce, i, part, new.stamp) for i, part in enumerate(parts)]
    first = BatchStatement(BatchType.UNLOGGED)
    if seen.position is not None:
        tidy = (
            "DELETE FROM $journal USING TIMESTAMP ? "
            "WHERE build = ? AND topic = ? AND partition = ? AND upto < ?"
        )
        first.add(store.prepared(tidy), (new.stamp, *lane.key, seen.position.next_offset))
    first.add(insert, rows[0])
    store.all([first, *(insert.bind(row) for row in rows[1:])])


def get(store: Store, lane: Lane, fence: Fence) -> bytes | None:
    """The rows of the write that moved the fence here; None when they are not there (any more)."""
    if not fence.chunks or fence.position is None:
        return b""
    pages = store.pages(
        "SELECT data FROM $journal "
        "WHERE build = ? AND topic = ? AND partition = ? AND upto = ? AND nonce = ?",
        *(*lane.key, fence.position.next_offset, fence.nonce),
    )
    found = [part for page in pages for (part,) in page]
    return b"".join(found) if len(found) == fence.chunks else None


def forget(store: Store, lane: Lane) -> None:
    """Delete what is left of a dead build."""
    store.plain(
        "DELETE FROM $journal USING TIMESTAMP ? WHERE build = ? AND topic = ? AND partition = ?",
        *(END_OF_STAMPS, *lane.key),
    )
