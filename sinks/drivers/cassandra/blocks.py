"""A write as blocks: per table the rows to store and the keys to delete, every key once."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from streams.runtime.sink import Delete, ReadModel, SinkRejected, Table, Upsert, Write

BUCKET_BYTES_MAX = 65_000
"""A partition key of Cassandra has at most 65,535 bytes, its own bookkeeping included."""
KEY_BYTES_MAX = 65_535
ROW_BYTES_MAX = 8_000_000
"""Half of the largest change that Cassandra takes (half of a segment of its log, 32 MiB)."""

_FIXED_BYTES = 16
"""What a value of fixed width is counted as."""


@dataclass(frozen=True)
class Block:
    """What a write does to one table. A key stands in one of the two frames, once."""

    table: Table
    upserts: pl.DataFrame
    deletes: pl.DataFrame


def blocks(model: ReadModel, write: Write) -> list[Block]:
    """The blocks of a checked write, as its last change of each key left it. Rows that have
    expired by the end of the write are left out.

    Raises `SinkRejected` for keys and rows larger than Cassandra takes: behind the fence there
    must be nothing that can be refused for itself.
    """
    made: list[Block] = []
    for table in model.tables:
        frames = [
            change.rows.with_columns(pl.lit(isinstance(change, Delete)).alias("_deleted"))
            for change in write.changes
            if isinstance(change, Upsert | Delete) and change.table == table
        ]
        if not frames or not isinstance(table, Table):
            continue
        frame = pl.concat(frames, how="diagonal")
        if frame.height > 1:
            frame = frame.unique(list(table.key), keep="last", maintain_order=True)
        since_ms = _since_ms(table, write)
        if since_ms is not None:
            frame = frame.filter(pl.col(str(table.time)) >= since_ms)
        if frame.height:
            block = _split(table, frame)
            _fitting(block)
            made.append(block)
    return made


def packed(parts: Sequence[Block]) -> bytes:
    """The blocks as bytes; empty for none."""
    if not parts:
        return b""
    frames = [(part.table.name, _arrow(part.upserts), _arrow(part.deletes)) for part in parts]
    return msgspec.msgpack.encode(frames)


def unpacked(model: ReadModel, data: bytes) -> list[Block]:
    """The inverse of `packed`."""
    if not data:
        return []
    found: list[Block] = []
    for name, upserts, deletes in msgspec.msgpack.decode(data, type=list[tuple[str, bytes, bytes]]):
        table = model.table(name)
        if isinstance(table, Table):
            found.append(Block(table, pl.read_ipc(upserts), pl.read_ipc(deletes)))
    return found


def weights(frame: pl.DataFrame) -> pl.Series:
    """Bytes of every row, roughly."""
    parts = [_weight(column, dtype) for column, dtype in frame.schema.items()]
    return frame.with_columns(pl.sum_horizontal(parts).alias("_bytes")).get_column("_bytes")


def _since_ms(table: Table, write: Write) -> int | None:
    known = (write.position.expired_ms.get(table.name), write.expire_before_ms.get(table.name))
    return max((one for one in known if one is not None), default=None)


def _split(table: Table, frame: pl.DataFrame) -> Block:
    missing = [
        pl.lit(None, dtype).alias(c) for c, dtype in table.values.items() if c not in frame.columns
    ]
    deleted = pl.col("_deleted")
    return Block(
        table,
        frame.filter(~deleted).with_columns(missing).select(*table.columns),
        frame.filter(deleted).select(*table.key),
    )


def _fitting(block: Block) -> None:
    table = block.table
    limits = [([c], KEY_BYTES_MAX) for c in table.key]
    limits += [(list(table.bucket), BUCKET_BYTES_MAX)] if table.bucket else []
    for frame in (block.upserts, block.deletes):
        for columns, most in [*limits, (frame.columns, ROW_BYTES_MAX)]:
            size = weights(frame.select(columns)).max()
            if isinstance(size, int) and size > most:
                where = "a row" if columns == frame.columns else ", ".join(columns)
                raise SinkRejected(f"{table.name}: {where} has {size} bytes, at most {most} go")


def _weight(column: str, dtype: pl.DataType) -> pl.Expr:
    value = pl.col(column)
    if isinstance(dtype, pl.List):
        if dtype.inner == pl.String:
            return value.list.eval(pl.element().str.len_bytes() + 4).list.sum().cast(pl.Int64)
        return value.list.len().cast(pl.Int64) * _FIXED_BYTES
    if dtype == pl.String:
        return value.str.len_bytes().cast(pl.Int64)
    if dtype == pl.Binary:
        return value.bin.size().cast(pl.Int64)
    return pl.lit(_FIXED_BYTES, pl.Int64)


def _arrow(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_ipc(out, compression="lz4")
    return out.getvalue()
