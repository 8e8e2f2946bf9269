"""A provider's settlement file: CSV with a head, lines, and a trailer that counts them.

    H,2026-01-01,2026-01-01T00:00:00Z,2026-01-02T00:00:00Z
    L,main.p1.capture,capture,EUR,42.00,0.84,op_77
    T,1

Amounts are decimals of their currency, read exactly. A file that is cut off, or holds anything
else, is refused as a whole, with the number of the line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Final

from schemas.payments.currencies import AMOUNT_MAX, decimal_text, minor_units
from schemas.payments.events import SettlementLine

LINES_MAX: Final = 20_000
_HEAD, _LINE, _TRAILER = 4, 7, 2
ID_CHARS_MAX: Final = 256


class BadFile(ValueError):
    """Not a settlement file; the message names the line and what is wrong with it."""


@dataclass(frozen=True)
class SettlementFile:
    """A file as it was read; the period is in milliseconds since 1970."""

    file_id: str
    period_from_ms: int
    period_to_ms: int
    lines: tuple[SettlementLine, ...]


def parse(raw: bytes) -> SettlementFile:
    """Read a file; raises `BadFile`."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile("the file is not UTF-8") from None
    if "\0" in text:
        raise BadFile("the file holds a null character")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error as error:
        raise BadFile(f"line {reader.line_num}: {error}") from None
    if len(rows) < 2 or rows[0][0] != "H" or rows[-1][0] != "T":
        raise BadFile("the file has no head or no trailer, so some of it is missing")
    file_id, from_ms, to_ms = _head(rows[0])
    _trailer(rows[-1], len(rows) - 2)
    lines = tuple(_line(number, row) for number, row in zip(count(1), rows[1:-1], strict=False))
    return SettlementFile(file_id, from_ms, to_ms, lines)


def render(file: SettlementFile, instant: Iterable[str]) -> bytes:
    """The file as text; `instant` are begin and end of its period in RFC 3339."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["H", file.file_id, *instant])
    for line in file.lines:
        currency = line["currency"]
        amount, fee = (decimal_text(line[name], currency) for name in ("amount", "fee"))
        row = [line["operation_id"], line["kind"], currency, amount, fee, line["psp_reference"]]
        writer.writerow(["L", *row])
    writer.writerow(["T", len(file.lines)])
    return out.getvalue().encode()


def _head(row: list[str]) -> tuple[str, int, int]:
    if len(row) != _HEAD:
        raise BadFile("line 1: the head has a file id and a period")
    begin, end = (_instant_ms(text) for text in row[2:])
    if not begin < end:
        raise BadFile("line 1: the period ends before it begins")
    return row[1], begin, end


def _trailer(row: list[str], lines: int) -> None:
    if len(row) != _TRAILER or not row[1].isascii() or not row[1].isdigit():
        raise BadFile("the trailer has the number of lines")
    if row[1] != str(lines):
        raise BadFile(f"the trailer says {row[1][:20]} lines, there are {lines}")
    if not 0 < lines <= LINES_MAX:
        raise BadFile(f"a file has from 1 to {LINES_MAX} lines, not {lines}")


def _line(number: int, row: list[str]) -> SettlementLine:
    where = f"line {number + 1}"
    if len(row) != _LINE or row[0] != "L":
        raise BadFile(f"{where}: a line has {_LINE} fields and begins with L")
    _, operation, kind, currency, amount, fee, reference = row
    if not 0 < len(operation) <= ID_CHARS_MAX or len(reference) > ID_CHARS_MAX:
        raise BadFile(f"{where}: no operation, or too long an id")
    if kind not in ("capture", "refund"):
        raise BadFile(f"{where}: neither capture nor refund")
    try:
        minor, kept = minor_units(amount, currency), minor_units(fee, currency)
    except ValueError as error:
        raise BadFile(f"{where}: {error}") from None
    if not 0 < minor <= AMOUNT_MAX or abs(kept) > AMOUNT_MAX:
        raise BadFile(f"{where}: an amount out of range")
    return {
        "line": number,
        "operation_id": operation,
        "kind": kind,
        "currency": currency,
        "amount": minor,
        "fee": kept,
        "psp_reference": reference,
    }


def _instant_ms(text: str) -> int:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise BadFile("line 1: the period is not in RFC 3339") from None
    if instant.tzinfo is None:
        raise BadFile("line 1: the period has no time zone")
    return int(instant.timestamp()) * 1_000
