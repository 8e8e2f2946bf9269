"""The versions of a read model: one row each, touched by lightweight transactions only."""

# ruff: noqa: S608 - all values are parameters

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex

from sinks.drivers.cassandra import fences, journal
from sinks.drivers.cassandra.ddl import Build, column_type, create_build
from sinks.drivers.cassandra.fences import END_OF_STAMPS, Lane
from sinks.drivers.cassandra.store import Store
from streams.runtime.sink import SinkRejected, Table

OPEN, SEALED, DROPPING = "open", "sealed", "dropping"
_AT = "WHERE model = ? AND version = ?"


@dataclass(frozen=True)
class Version:
    """What is known of a version: its build, its state and the lanes that were ever written."""

    build: Build
    state: str
    lanes: tuple[Lane, ...]


def live(store: Store, model: str) -> int:
    """The version that answers; 1 when none is set."""
    found = store.look("SELECT live FROM $versions WHERE model = ? LIMIT 1", model)
    return int(found[0][0] or 1) if found else 1


def switch(store: Store, model: str, version: int) -> None:
    """Make a version the live one."""
    store.swap(
        "UPDATE $versions SET live = ? WHERE model = ? IF live != ?", version, model, version
    )


def read(store: Store, model: str, version: int) -> Version | None:
    """The version, or None where it was never made or is dropped."""
    found = store.look(f"SELECT build, state, lanes FROM $versions {_AT}", model, version)
    if not found or found[0][0] is None:
        return None
    token, state, names = found[0]
    build = Build(model, version, token)
    return Version(build, state, tuple(Lane.named(build, name) for name in names or ()))


def numbers(store: Store, model: str) -> list[int]:
    """The versions there are, ascending."""
    found = store.look("SELECT version, build FROM $versions WHERE model = ?", model)
    return [version for version, token in found if token is not None]


def make(store: Store, model: str, version: int, tables: Sequence[Table]) -> Version:
    """The version with all its tables, made where it is missing."""
    while True:
        found = read(store, model, version)
        if found is None:
            store.swap(
                f"UPDATE $versions SET build = ?, state = ? {_AT} IF build = null",
                *(token_hex(4), OPEN, model, version),
            )
        elif found.state == DROPPING:
            erase(store, found)
        else:
            for statement in create_build(store.keyspace, found.build, tables):
                store.define(statement)
            return found


def agree(store: Store, build: Build, tables: Sequence[Table]) -> None:
    """Raise `SinkRejected` where a table of the build was made for other columns: a write would
    fail when its position had moved, and never come to an end. Columns that only older code knows
    are no harm.
    """
    for table in tables:
        found = store.plain(
            "SELECT column_name, type FROM system_schema.columns "
            "WHERE keyspace_name = ? AND table_name = ?",
            *(store.keyspace, build.rows(table)),
        )
        wanted = {name: column_type(dtype) for name, dtype in table.columns.items()}
        if lacking := sorted(wanted.items() - dict(found).items()):
            columns = ", ".join(f"{name} {kind}" for name, kind in lacking)
            raise SinkRejected(
                f"{build.model} v{build.version}: its table {table.name} was made without "
                f"{columns}; the code is newer. Rebuild the read model, then start again"
            )


def register(store: Store, lane: Lane) -> bool:
    """Make a lane known to `seal`; False when the version is not open."""
    build = lane.build
    return store.swap(
        f"UPDATE $versions SET lanes = lanes + ? {_AT} IF build = ? AND state = ?",
        *({lane.name}, build.model, build.version, build.token, OPEN),
    )


def become(store: Store, build: Build, state: str) -> bool:
    """Put a version into a state; False when it is another build by now."""
    return store.swap(
        f"UPDATE $versions SET state = ? {_AT} IF build = ?",
        *(state, build.model, build.version, build.token),
    )


def erase(store: Store, version: Version) -> None:
    """Delete all of a version that is being dropped; its own row last, so that it can be resumed.

    Finds also tables that the code no longer knows.
    """
    build = version.build
    suffixes = (build.suffix, f"{build.suffix}_times")
    found = store.plain(
        "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", store.keyspace
    )
    for (name,) in found:
        if name.endswith(suffixes):
            store.define(f'DROP TABLE IF EXISTS $"{name}"')
    store.plain(
        "DELETE FROM $positions USING TIMESTAMP ? WHERE build = ?", END_OF_STAMPS, build.key
    )
    for lane in version.lanes:
        journal.forget(store, lane)
        fences.forget(store, lane)
    store.swap(f"DELETE FROM $versions {_AT} IF build = ?", build.model, build.version, build.token)
