"""What one request asks of the engine, read from its SQL text.

The engine parses and runs SQL; this module only answers what the HTTP layer must know first: where
the SQL of an INSERT ends and its data begins, which output format a query names, and whether it
only reads. It follows ClickHouse's lexer for what matters here: strings, quoted identifiers,
comments and nesting.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from infra.clickhouse.errors import ServerError

_TOKEN = re.compile(
    rb"""
      (?P<blank>\s+|--[^\n]*|\#[!\ ][^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<quoted>(?P<quote>['"`])(?:\\.|(?P=quote){2}|(?!(?P=quote))[^\\])*(?:(?P=quote)|\Z))
    | (?P<heredoc>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<word>[A-Za-z_][\w$]*)
    | (?P<number>\d[\w.]*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DATA_START = re.compile(rb"[ \t\f]*\r?\n?")
_SELECTS = frozenset({b"SELECT", b"WITH", b"FROM", b"("})
_READS = _SELECTS | {b"SHOW", b"DESCRIBE", b"DESC", b"EXPLAIN", b"EXISTS", b"CHECK"}


@dataclass(frozen=True, slots=True)
class Query:
    """Anything but an INSERT with data: run as it is.

    `format` is None when the SQL names none; `selects` is for what can be run block by block.
    """

    format: str | None
    reads_only: bool
    selects: bool


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT with data: `sql` without its FORMAT clause, and where the data begins (bytes)."""

    sql: str
    table: str
    format: str
    data_offset: int


@dataclass(frozen=True, slots=True)
class _Token:
    text: bytes  # keywords and names upper-cased, for comparison
    start: int
    end: int
    depth: int


def parse(head: bytes) -> Query | Insert:
    """Read a statement from the start of a request.

    `head` is the whole text of a query, or at least the first `max_query_size` bytes of an INSERT
    (what follows its FORMAT or VALUES may be binary and is not looked at).

    Raises `ServerError` SYNTAX_ERROR for an empty query, and for `INTO OUTFILE` and `FROM INFILE`,
    which a server refuses because they name files of the client.
    """
    tokens = _tokens(head)
    first = next(tokens, None)
    if first is None:
        raise ServerError(62, "SYNTAX_ERROR", "Syntax error: Empty query")
    if first.text == b"INSERT":
        insert = _insert(head, first, tokens)
        if insert is not None:
            return insert
    return _query(first, list(_tokens(head)))


def _tokens(text: bytes) -> Iterator[_Token]:
    depth = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "blank":
            continue
        token = match.group()
        if token in {b")", b"]", b"}"}:
            depth = max(0, depth - 1)
        yield _Token(token.upper() if kind == "word" else token, match.start(), match.end(), depth)
        if token in {b"(", b"[", b"{"}:
            depth += 1


def _insert(head: bytes, first: _Token, tokens: Iterator[_Token]) -> Insert | None:
    """The INSERT with its data split off, or None for INSERT ... SELECT."""
    table_start = table_end = None
    previous = first
    for token in tokens:
        if table_start is None:
            if token.text not in {b"INTO", b"TABLE", b"FUNCTION"}:
                table_start = token.start
        elif table_end is None and _ends_table(token):
            table_end = previous.end
        if token.depth == 0 and table_start is not None and previous.text != b".":
            table = head[table_start : table_end or token.start]
            if token.text in {b"SELECT", b"WITH", b"INFILE"}:
                return None
            if token.text == b"VALUES" and previous.end > table_start:
                return _with_data(head, token, table, "Values", token.end)
            if token.text == b"FORMAT" and previous.end > table_start:
                name = next(tokens, None)
                if name is None:
                    return None
                end = _skip_semicolon(head, name.end)
                data = _DATA_START.match(head, end)
                name_text = head[name.start : name.end].decode()
                return _with_data(head, token, table, name_text, data.end() if data else end)
        previous = token
    return None


def _ends_table(token: _Token) -> bool:
    return token.depth == 0 and token.text in {
        b"(",
        b"VALUES",
        b"FORMAT",
        b"SETTINGS",
        b"PARTITION",
    }


def _skip_semicolon(head: bytes, end: int) -> int:
    return end + 1 if head[end : end + 1] == b";" else end


def _with_data(head: bytes, keyword: _Token, table: bytes, fmt: str, offset: int) -> Insert:
    sql = head[: keyword.start].decode("utf-8", "surrogateescape").strip()
    name = table.decode("utf-8", "surrogateescape").strip()
    return Insert(sql=sql, table=name, format=fmt, data_offset=offset)


def _query(first: _Token, tokens: list[_Token]) -> Query:
    for verb, noun in itertools.pairwise(tokens):
        if (verb.text, noun.text) in {(b"INTO", b"OUTFILE"), (b"FROM", b"INFILE")}:
            where = f"{verb.text.decode()} {noun.text.decode()}"
            raise ServerError(62, "SYNTAX_ERROR", f"{where} is not allowed over HTTP")
    writes = any(token.text == b"INSERT" and token.depth == 0 for token in tokens)
    return Query(
        format=_output_format(tokens),
        reads_only=first.text in _READS and not writes,
        selects=first.text in _SELECTS and not writes,
    )


def _output_format(tokens: list[_Token]) -> str | None:
    """The name after a closing FORMAT; only SETTINGS may follow it."""
    for index in range(len(tokens) - 2, 0, -1):
        if tokens[index].text == b"FORMAT" and tokens[index].depth == 0:
            after = tokens[index + 2 :]
            if not after or after[0].text in {b"SETTINGS", b";"}:
                return tokens[index + 1].text.decode()
            return None
    return None
