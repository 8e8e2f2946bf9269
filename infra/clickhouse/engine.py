"""The chDB engine as a pool: one process, one data directory, many short sessions.

What the engine allows, found by trying it: connections to one directory are independent sessions
(database, settings, temporary tables), cost 0.4 ms to open, run at the same time, and let go of the
interpreter lock. One connection does one thing at a time. So each request gets a fresh connection
on a thread of its own for the duration, and nothing leaks from one request into another.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from chdb.state.sqlitelike import Connection

from infra.clickhouse.errors import ServerError
from infra.clickhouse.statement import Insert

P = ParamSpec("P")
R = TypeVar("R")

_KILL_AGAIN_S = 0.2
_PIECE_BYTES = 1 << 20


class DataDirectoryInUse(RuntimeError):
    """Another process has the data directory."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the engine tells about a finished statement; zero where it tells nothing."""

    read_rows: int = 0
    read_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0
    result_rows: int = 0
    result_bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.read_rows + other.read_rows,
            self.read_bytes + other.read_bytes,
            self.written_rows + other.written_rows,
            self.written_bytes + other.written_bytes,
            self.result_rows + other.result_rows,
            self.result_bytes + other.result_bytes,
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a result: its bytes and its share of the counts."""

    data: bytes
    counts: Counts


class Session:
    """One request's connection. Not to be used by two tasks at once."""

    def __init__(self, path: str, spool_directory: Path, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._path = path
        self._spool_directory = spool_directory
        self._connection: Any = None
        self._busy: asyncio.Future[Any] | None = None
        self._cancelled = threading.Event()

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run on this session's thread; engine failures come back as `ServerError`."""
        loop = asyncio.get_running_loop()
        self._busy = loop.run_in_executor(self._thread, lambda: function(*args, **kwargs))
        try:
            return await asyncio.shield(self._busy)
        except RuntimeError as error:
            raise ServerError.from_engine(error) from error

    async def configure(self, database: str | None, settings: Mapping[str, str]) -> None:
        """Open the connection, choose the database and set the settings.

        Raises `ServerError` for an unknown database (81) or setting (115).
        """
        await self.call(self._configure, database, settings)

    def _configure(self, database: str | None, settings: Mapping[str, str]) -> None:
        self._connection = Connection(self._path)
        if database:
            self._connection.query(_bytes(f"USE {quote_name(database)}"))
        pairs = ", ".join(f"{quote_name(key)} = {quote(value)}" for key, value in settings.items())
        self._connection.query(_bytes(f"SET {pairs}"))

    def statement_count(self, sql: bytes) -> int:
        """How many statements the text holds; 0 when it does not parse."""
        return int(self._connection._conn.classify_query(sql)["statement_count"])

    async def run(self, sql: bytes, fmt: str, params: Mapping[str, str]) -> Piece:
        """Run a statement to its end and hold its whole result."""
        return await self.call(self._run, sql, fmt, params)

    def _run(self, sql: bytes, fmt: str, params: Mapping[str, str]) -> Piece:
        result = self._connection.query(sql, fmt, params=dict(params))
        return Piece(bytes(result.bytes()), _counts(result))

    async def stream(
        self, sql: bytes, fmt: str, params: Mapping[str, str]
    ) -> AsyncGenerator[Piece]:
        """Run a query block by block. At most one block is held.

        Yields nothing for an empty result. What is left when the iterator is dropped ends with the
        session: a cancel here would queue on this session's thread behind a fetch that may be slow.
        """
        stream = await self.call(self._connection.send_query, sql, fmt, params=dict(params))
        while (chunk := await self.call(stream.fetch)) is not None:
            yield Piece(bytes(chunk.bytes()), _counts(chunk))

    async def insert(self, insert: Insert, data: IO[bytes]) -> Counts:
        """Insert what is left to read of `data`.

        Returns only when all of it is stored. Raises `ServerError` when any of it is not; then
        blocks before the one that failed may be stored (`max_insert_block_size` rows each).
        """
        return await self.call(self._insert, insert, data)

    def _insert(self, insert: Insert, data: IO[bytes]) -> Counts:
        # The engine's own streaming insert (`send_insert`) reports what it cannot parse but not
        # what it cannot store. A query reports both, and takes binary data only from a file.
        with tempfile.TemporaryFile(dir=self._spool_directory) as file:
            while piece := data.read(_PIECE_BYTES):
                if self._cancelled.is_set():
                    raise ServerError(394, "QUERY_WAS_CANCELLED", "The client went away")
                file.write(piece)
            file.seek(0)  # flushes; and where /dev/fd shares the offset, starts at the beginning
            result = self._connection.query(insert.from_file(f"/dev/fd/{file.fileno()}"))
        return Counts(written_rows=result.rows_written(), written_bytes=result.bytes_written())

    async def settle(self, kill: Callable[[], None]) -> None:
        """Bring a statement that is still running to its end, then close."""
        self._cancelled.set()
        while self._busy is not None and not self._busy.done():
            await asyncio.to_thread(kill)
            await asyncio.wait([self._busy], timeout=_KILL_AGAIN_S)
        if self._busy is not None and not self._busy.cancelled():
            self._busy.exception()  # seen: the request it belonged to is gone
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._close)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Engine:
    """The engine over one data directory.

    `threads` statements that read and as many that write run at once: a slow SELECT never takes an
    INSERT's place. Others wait, at most `queue_timeout_s`, then fail with
    TOO_MANY_SIMULTANEOUS_QUERIES. Inserts into one table run one after the other.
    """

    def __init__(self, directory: Path, *, threads: int, queue_timeout_s: float) -> None:
        self._directory = directory
        self._queue_timeout_s = queue_timeout_s
        self._lock_file = _take(directory)
        store = directory / "store"
        store.mkdir(exist_ok=True)
        self._path = str(store)
        self._root = Connection(self._path)
        self._root_lock = threading.Lock()
        self._reads = _threads("read", threads)
        self._writes = _threads("write", threads)
        self._running: set[str] = set()
        self._tables: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self.spool_directory = directory / "spool"
        self.spool_directory.mkdir(exist_ok=True)
        for left_over in self.spool_directory.iterdir():
            left_over.unlink()

    def scalar(self, sql: str) -> str:
        """One value, as text, from the engine's own session."""
        with self._root_lock:
            return str(self._root.query(sql, "TabSeparatedRaw").bytes().decode().rstrip("\n"))

    def table_lock(self, full_name: str) -> asyncio.Lock:
        """The lock that makes inserts into a table serial."""
        return self._tables.setdefault(full_name, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def session(self, query_id: str, *, reads_only: bool) -> AsyncIterator[Session]:
        """A fresh session on a thread of its own; whatever still runs at exit is killed.

        The engine chooses its own query ids; ours is kept in `log_comment`, which is how a running
        statement is found again. Raises `ServerError` 216 when the id is already running.
        """
        if query_id in self._running:
            raise ServerError(
                216,
                "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING",
                f"Query with id = {query_id} is already running.",
            )
        self._running.add(query_id)
        try:
            thread = await self._lease(self._reads if reads_only else self._writes)
            session = Session(self._path, self.spool_directory, thread)
            try:
                yield session
            finally:
                await _to_the_end(self._give_back(session, thread, query_id, reads_only))
        finally:
            self._running.discard(query_id)

    async def _lease(self, pool: asyncio.Queue[ThreadPoolExecutor]) -> ThreadPoolExecutor:
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                return await pool.get()
        except TimeoutError:
            raise ServerError(
                202, "TOO_MANY_SIMULTANEOUS_QUERIES", "All threads are busy with other queries"
            ) from None

    async def _give_back(
        self, session: Session, thread: ThreadPoolExecutor, query_id: str, reads_only: bool
    ) -> None:
        try:
            await session.settle(lambda: self.kill(query_id))
        finally:
            (self._reads if reads_only else self._writes).put_nowait(thread)

    def kill(self, query_id: str) -> None:
        """Ask a running statement to stop; nothing happens when there is none."""
        self.scalar(f"KILL QUERY WHERE Settings['log_comment'] = {quote(query_id)} ASYNC")

    def kill_all(self) -> None:
        """Ask every running statement to stop."""
        self.scalar("KILL QUERY WHERE query_id != queryID() ASYNC")

    def close(self) -> None:
        """Close the engine and let go of the directory."""
        for pool in (self._reads, self._writes):
            while not pool.empty():
                pool.get_nowait().shutdown(wait=False)
        with self._root_lock:
            self._root.close()
        self._lock_file.close()


def quote(value: str) -> str:
    """A ClickHouse string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_name(name: str) -> str:
    """A ClickHouse quoted identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` even when cancelled meanwhile; the cancellation goes on afterwards."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


def _bytes(sql: str) -> bytes:
    """Text from headers may hold bytes that are no UTF-8; they go on as they came."""
    return sql.encode("utf-8", "surrogateescape")


def _threads(kind: str, count: int) -> asyncio.Queue[ThreadPoolExecutor]:
    pool: asyncio.Queue[ThreadPoolExecutor] = asyncio.Queue()
    for number in range(count):
        pool.put_nowait(ThreadPoolExecutor(1, thread_name_prefix=f"{kind}-{number}"))
    return pool


def _counts(result: Any) -> Counts:
    return Counts(
        read_rows=result.storage_rows_read(),
        read_bytes=result.storage_bytes_read(),
        written_rows=result.rows_written(),
        written_bytes=result.bytes_written(),
        result_rows=result.rows_read(),
        result_bytes=result.bytes_read(),
    )


def _take(directory: Path) -> IO[str]:
    """Lock the directory for this process; the lock goes with the process, however it ends."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock_file = (directory / "lock").open("a+")
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock_file.seek(0)
        owner = lock_file.read().strip() or "unknown"
        lock_file.close()
        raise DataDirectoryInUse(f"{directory} is in use by process {owner}") from None
    lock_file.truncate(0)
    lock_file.write(str(os.getpid()))
    lock_file.flush()
    return lock_file
