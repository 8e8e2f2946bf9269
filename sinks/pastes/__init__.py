"""Where pastes are stored; `reader` reads them, `objects` keeps what is too large for a table.

`pastes-table` (Cassandra) is a fold without memory. Small contents are in it, by their hash, once
however many pastes have them; of the others it says which object has them.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table

DAY_MS = 24 * 3_600_000

_SHOWN = {
    "language": pl.String,
    "size": pl.Int64,
    "expires_ms": pl.Int64,
}

PASTES = Table(
    "pastes",
    key={"id": pl.String},
    values={
        "change": pl.String,
        "ended": pl.String,
        "owner": pl.String,
        "visibility": pl.String,
        "sha256": pl.String,
        "created_ms": pl.Int64,
        "burn": pl.Boolean,
        "lock": pl.String,
        "object": pl.String,
        "dropped": pl.String,
        "changed_ms": pl.Int64,
        "offset": pl.Int64,
        **_SHOWN,
    },
    bucket=("id",),
)
"""How every paste stands, since the event at `offset`; also those that have ended."""

OWNED = Table(
    "owned",
    key={"owner": pl.String, "created_ms": pl.Int64, "id": pl.String},
    values={"visibility": pl.String, "burn": pl.Boolean, **_SHOWN},
    bucket=("owner",),
)
"""Pastes that have not ended, by who made them."""

LISTED = Table(
    "listed",
    key={"day_ms": pl.Int64, "created_ms": pl.Int64, "id": pl.String},
    values={"visibility": pl.String, "burn": pl.Boolean, **_SHOWN},
    bucket=("day_ms",),
)
"""Public pastes that have not ended, by the day they were made (UTC)."""

CONTENTS = Table(
    "contents",
    key={"sha256": pl.String},
    values={"content": pl.String},
    bucket=("sha256",),
)
"""Contents that came in an event, as long as a paste needs them."""

OBJECTS = Table(
    "objects",
    key={"sha256": pl.String},
    values={"object": pl.String, "references": pl.Int64, "size": pl.Int64},
    bucket=("sha256",),
)
"""The one object of each content that is in the object store, and how many pastes need it."""

TABLE = ReadModel("pastes-table", (PASTES, OWNED, LISTED, CONTENTS, OBJECTS))
