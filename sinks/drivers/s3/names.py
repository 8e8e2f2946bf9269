"""Keys of a read model in a bucket, for writer and reader. A model `log-lines` has

    log-lines/live.json                                   which version answers
    log-lines/v2/version.json                             its partitions, and whether it is sealed
    log-lines/v2/positions/<topic>/<partition>.json       a manifest: position and pieces
    log-lines/v2/<table>/<topic>/<partition>/<piece>      rows, as Parquet

A piece is called `<first>-<next>.<seq>-<digest>.parquet`: the offsets it holds the rows of, the
manifest it was written for, and a digest of its bytes. So the same rows go to the same object
when they are sent again, other rows never do, and a piece whose `seq` has passed without a
manifest that names it is litter.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from streams.runtime.sink import ReadModel, Table

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_PIECE = re.compile(r".*/\d+-\d+\.(\d+)-[0-9a-f]+\.parquet")


def checked(model: ReadModel) -> tuple[Table, ...]:
    """The tables of the model; `TypeError` for rankings (ranks want an index, not files) and for
    names that cannot be part of a key or are taken.
    """
    tables: list[Table] = []
    for table in model.tables:
        if not isinstance(table, Table):
            raise TypeError(f"{model.name} {table.name}: S3 keeps no rankings, use redis")
        if table.name == "positions":
            raise TypeError(f"{model.name}: {table.name} is a folder of the driver")
        for name in (model.name, table.name):
            if not _NAME.fullmatch(name):
                raise TypeError(f"{name!r} is no name for a model or table")
        for column in table.columns:
            if column.startswith("_"):
                raise TypeError(f"{model.name} {table.name}.{column}: the driver's own begin so")
        tables.append(table)
    return tuple(tables)


def live(model: str) -> str:
    """The pointer to the version that answers."""
    return f"{model}/live.json"


def folder(model: str, version: int) -> str:
    """What all keys of a version begin with."""
    return f"{model}/v{version}/"


def version_file(model: str, version: int) -> str:
    """The facts about a version."""
    return f"{folder(model, version)}version.json"


def manifest(model: str, version: int, topic: str, partition: int) -> str:
    """The manifest of a log partition."""
    return f"{folder(model, version)}positions/{topic}/{partition}.json"


def pieces(model: str, version: int, table: str, topic: str, partition: int) -> str:
    """What the keys of a table's pieces of a log partition begin with."""
    return f"{folder(model, version)}{table}/{topic}/{partition}/"


def piece(first: int, stop: int, seq: int, content: bytes) -> str:
    """The name of a piece with the rows of offsets [first, stop)."""
    digest = blake2b(content, digest_size=8).hexdigest()
    return f"{first:019}-{stop:019}.{seq}-{digest}.parquet"


def seq(key: str) -> int | None:
    """The manifest that a piece was written for; None for a key that is no piece."""
    found = _PIECE.fullmatch(key)
    return None if found is None else int(found[1])
