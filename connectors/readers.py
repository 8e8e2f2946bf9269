"""Files as Polars frames: CSV, JSONL (both also with .gz) and Parquet, in bounded memory.

Every frame has `_line`: the line the row begins on (1 is the file's first line; of Parquet, the
row). What is not a row at all comes as `Rejected`, with its line and the reason.
CSV values are text and an empty one is null, as is everywhere a missing one.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import polars as pl

from connectors.strict_json import NotStrict, loads

LINE = "_line"
BATCH_ROWS = 50_000
FORMATS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz", ".ndjson", ".parquet")


class UnreadableFile(ValueError):
    """The file is not what its name says, or breaks off."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that is not sent: where, why, and what it held."""

    line: int
    reason: str
    content: Any


@dataclass(frozen=True)
class Chunk:
    """Some rows of a file, and the lines before and between them that are no rows."""

    frame: pl.DataFrame
    rejected: tuple[Rejected, ...] = ()


def read(path: Path, batch_rows: int = BATCH_ROWS) -> Iterator[Chunk]:
    """The rows of a file in its order. Raises `UnreadableFile`."""
    name = path.name.lower().removesuffix(".gz")
    try:
        if name.endswith((".csv", ".tsv")):
            yield from _csv(path, batch_rows, "\t" if name.endswith(".tsv") else ",")
        elif name.endswith((".jsonl", ".ndjson")):
            yield from _jsonl(path, batch_rows)
        elif name.endswith(".parquet"):
            yield from _parquet(path, batch_rows)
        else:
            raise UnreadableFile(f"{path.name}: not one of {', '.join(FORMATS)}")
    except (OSError, EOFError, gzip.BadGzipFile, pl.exceptions.PolarsError) as error:
        raise UnreadableFile(f"{path.name}: {error}") from error


def _open(path: Path) -> IO[bytes]:
    if path.suffix.lower() == ".gz":
        return cast("IO[bytes]", gzip.open(path))
    return path.open("rb")


class _Lines:
    """Decodes lines one by one and notes where one is not UTF-8, so that a bad byte costs its
    row only. Such a byte is carried as a half surrogate, which no valid text holds.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.dirty = False

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._raw):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
            try:
                yield text.decode()
            except UnicodeDecodeError:
                self.dirty = True
                yield text.decode(errors="surrogateescape")


def _csv(path: Path, batch_rows: int, delimiter: str) -> Iterator[Chunk]:
    with _open(path) as raw:
        lines = _Lines(raw)
        reader = csv.reader(iter(lines), delimiter=delimiter, strict=True)
        header = next(reader, [])
        if not header or len(set(header)) != len(header) or lines.dirty:
            raise UnreadableFile(f"{path.name}: line 1 must name every column once, in UTF-8")
        rows: list[list[str]] = []
        numbers: list[int] = []
        rejected: list[Rejected] = []
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                until = f" (up to line {reader.line_num})" if reader.line_num > line else ""
                rejected.append(Rejected(line, f"not CSV: {error}{until}", None))
                continue
            if not row:
                continue  # an empty line is no row of a table
            reason = _fault(row, len(header), lines)
            if reason is None:
                rows.append(row)
                numbers.append(line)
            else:
                rejected.append(Rejected(line, reason, [_printable(value) for value in row]))
            if len(rows) + len(rejected) >= batch_rows:
                yield Chunk(_text_frame(header, rows, numbers), tuple(rejected))
                rows, numbers, rejected = [], [], []
        yield Chunk(_text_frame(header, rows, numbers), tuple(rejected))


def _fault(row: list[str], columns: int, lines: _Lines) -> str | None:
    if len(row) != columns:
        return f"{len(row)} values, but {columns} columns"
    if lines.dirty:
        lines.dirty = False
        if any(_printable(value) != value for value in row):
            return "not UTF-8"
    return None


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _text_frame(header: list[str], rows: list[list[str]], numbers: list[int]) -> pl.DataFrame:
    columns: Any = zip(*rows, strict=True) if rows else ([] for _ in header)
    frame = pl.DataFrame(
        [pl.Series(name, values, pl.String) for name, values in zip(header, columns, strict=True)]
    )
    empty_is_null = pl.when(pl.all().str.len_bytes() > 0).then(pl.all())
    return frame.select(empty_is_null).with_columns(pl.Series(LINE, numbers, pl.Int64))


def _jsonl(path: Path, batch_rows: int) -> Iterator[Chunk]:
    with _open(path) as raw:
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        rejected: list[Rejected] = []
        for number, line in enumerate(raw, start=1):
            text = line.strip()
            if not text:
                continue
            try:
                row = loads(text)
            except NotStrict as error:
                row = error
            if isinstance(row, dict):
                rows.append(row)
                numbers.append(number)
            else:
                reason = str(row) if isinstance(row, NotStrict) else "not a JSON object"
                content = text[:1_000].decode(errors="backslashreplace")
                rejected.append(Rejected(number, reason, content))
            if len(rows) + len(rejected) >= batch_rows:
                yield Chunk(_object_frame(rows, numbers), tuple(rejected))
                rows, numbers, rejected = [], [], []
        yield Chunk(_object_frame(rows, numbers), tuple(rejected))


def _object_frame(rows: list[dict[str, Any]], numbers: list[int]) -> pl.DataFrame:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [_series(name, [row.get(name) for row in rows]) for name in names]
    return pl.DataFrame([*columns, pl.Series(LINE, numbers, pl.Int64)])


def _series(name: str, values: list[Any]) -> pl.Series:
    """A typed column; one of mixed types becomes text, so that no value is lost or guessed."""
    try:
        return pl.Series(name, values, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        texts = [v if v is None or isinstance(v, str) else str(v) for v in values]
        return pl.Series(name, texts, pl.String)


def _parquet(path: Path, batch_rows: int) -> Iterator[Chunk]:
    frames = pl.scan_parquet(path).with_row_index(LINE, offset=1)
    for frame in frames.collect_batches(chunk_size=batch_rows, maintain_order=True):
        yield Chunk(frame.with_columns(pl.col(LINE).cast(pl.Int64)))
