"""A session with Cassandra: prepared statements and the three ways to run one.

`plain` and `pages` read and write at LOCAL_QUORUM. Plain writes carry their timestamps, so the
driver may repeat them at another node. `swap` runs a lightweight transaction and never repeats
it; `look` reads what transactions wrote (SERIAL), and ends one that hangs in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Semaphore
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import tuple_factory

from sinks.drivers.cassandra import ddl
from sinks.drivers.cassandra.errors import translated
from streams.runtime.settings import Cassandra
from streams.runtime.sink import SinkUnavailable

Row = tuple[Any, ...]
Statement = Any
"""A bound statement or a batch of them; the driver has no types of its own."""

CONCURRENCY = 32
"""Requests in flight of one write."""
PAGE_ROWS = 2_000
RECONNECT_S = (0.5, 10.0)
"""Pauses between attempts to reach a node that went away: the first and the longest."""
DEFINE_TIMEOUT_S = 60.0
"""A change of the schema writes out and deletes files, and waits for the other nodes."""

_SWAP, _LOOK = "swap", "look"


def connect(settings: Cassandra, timeout_s: float = 10.0, *, create: bool = True) -> Store:
    """A session in the keyspace, which is made with its shared tables where it is missing.

    Without `create` it has to be there. Raises `SinkUnavailable` without an answer.
    """
    cluster = Cluster(
        list(settings.contact_points),
        port=settings.port,
        protocol_version=5,
        auth_provider=_login(settings),
        execution_profiles=_profiles(settings, timeout_s),
        connect_timeout=timeout_s,
        control_connection_timeout=timeout_s,
        executor_threads=2,
        reconnection_policy=ExponentialReconnectionPolicy(*RECONNECT_S),
        monitor_reporting_enabled=False,
        schema_event_refresh_window=-1,  # tables come and go with every rebuild of any model
    )
    try:
        with translated():
            session = cluster.connect()
            store = Store(session, settings.keyspace)
            _ensure(store, settings, create=create)
    except BaseException:
        cluster.shutdown()
        raise
    return store


class Store:
    """One session. In its statements `$name` stands for a table of the keyspace: a session that
    had chosen a keyspace could prepare for one and run in another.
    """

    def __init__(self, session: Any, keyspace: str) -> None:
        self.session = session
        self.keyspace = keyspace
        self._prepared: dict[str, Any] = {}

    def bound(self, cql: str, *values: Any) -> Statement:
        """The statement with these values, prepared at the first use."""
        return self.prepared(cql).bind(values)

    def prepared(self, cql: str) -> Any:
        """The prepared statement."""
        if cql not in self._prepared:
            with translated():
                self._prepared[cql] = self.session.prepare(self._qualified(cql))
        return self._prepared[cql]

    def cached(self, cql: str) -> Any:
        """The prepared statement if it is known already, else None."""
        return self._prepared.get(cql)

    def plain(self, cql: str, *values: Any) -> list[Row]:
        """Run it and return the first page of rows."""
        statement = self.bound(cql, *values)
        with translated():
            return list(self.session.execute(statement).current_rows)

    def pages(self, cql: str, *values: Any) -> Iterator[list[Row]]:
        """All rows, page by page."""
        statement = self.bound(cql, *values)
        statement.fetch_size = PAGE_ROWS
        with translated():
            found = self.session.execute(statement)
        while True:
            if found.current_rows:
                yield list(found.current_rows)
            if not found.has_more_pages:
                return
            with translated():
                found.fetch_next_page()

    def all(self, statements: Iterable[Statement]) -> None:
        """Run them, `CONCURRENCY` in flight, and return when all are done; raises what the first
        failure means.

        Statements are made in this thread: in the driver's own, one that has to be prepared would
        wait for itself.
        """
        free = Semaphore(CONCURRENCY)
        failures: list[Exception] = []

        def failed(error: Exception) -> None:
            failures.append(error)
            free.release()

        with translated():
            for statement in statements:
                free.acquire()
                if failures:
                    free.release()
                    break
                future = self.session.execute_async(statement)
                future.add_callbacks(lambda _: free.release(), failed)
            for _ in range(CONCURRENCY):
                free.acquire()
            if failures:
                raise failures[0]

    def swap(self, cql: str, *values: Any) -> bool:
        """Run a lightweight transaction; whether its condition held."""
        statement = self.bound(cql, *values)
        with translated():
            found = self.session.execute(statement, execution_profile=_SWAP)
            return bool(found.was_applied)

    def look(self, cql: str, *values: Any) -> list[Row]:
        """Rows of one partition as the last lightweight transaction left them."""
        statement = self.bound(cql, *values)
        with translated():
            return list(self.session.execute(statement, execution_profile=_LOOK).all())

    def define(self, cql: str) -> None:
        """Change the schema, and wait until the nodes that are up agree on it."""
        with translated():
            self.session.execute(self._qualified(cql), timeout=DEFINE_TIMEOUT_S)

    def _qualified(self, cql: str) -> str:
        return cql.replace("$", f'"{self.keyspace}".')

    def close(self) -> None:
        """Release the connections."""
        self.session.cluster.shutdown()


def _profiles(settings: Cassandra, timeout_s: float) -> dict[Any, ExecutionProfile]:
    def profile(consistency: int, retries: RetryPolicy) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(settings.datacenter)),
            retry_policy=retries,
            consistency_level=consistency,
            serial_consistency_level=ConsistencyLevel.SERIAL,
            request_timeout=timeout_s,
            row_factory=tuple_factory,
        )

    return {
        EXEC_PROFILE_DEFAULT: profile(ConsistencyLevel.LOCAL_QUORUM, RetryPolicy()),
        _SWAP: profile(ConsistencyLevel.LOCAL_QUORUM, FallthroughRetryPolicy()),
        _LOOK: profile(ConsistencyLevel.SERIAL, RetryPolicy()),
    }


def _login(settings: Cassandra) -> PlainTextAuthProvider | None:
    if not settings.user:
        return None
    return PlainTextAuthProvider(settings.user, settings.password.get_secret_value())


def _ensure(store: Store, settings: Cassandra, *, create: bool) -> None:
    known = store.session.cluster.metadata.keyspaces.get(settings.keyspace)
    if known is None and not create:
        raise SinkUnavailable(f"there is no keyspace {settings.keyspace} yet")
    if known is None:
        store.define(
            ddl.create_keyspace(settings.keyspace, settings.datacenter, settings.replication_factor)
        )
    if create:
        for name, statement in ddl.create_shared(settings.keyspace).items():
            if known is None or name not in known.tables:
                store.define(statement)
