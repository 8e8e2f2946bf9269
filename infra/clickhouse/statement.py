"""What one request asks of the engine, read from its SQL text.

The engine parses and runs SQL; this module only answers what the HTTP layer must know first: where
the SQL of an INSERT ends and its data begins, which output format a query names, and whether it
only reads. It follows ClickHouse's lexer for what matters here: strings, quoted identifiers,
comments and nesting (heredocs are not known). One pass, constant memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from infra.clickhouse.errors import ServerError

_TOKEN = re.compile(
    rb"""
      (?P<blank>\s+|--[^\n]*|\#[!\ ][^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<quoted>(?P<quote>['"`])(?:\\.|(?P=quote){2}|(?!(?P=quote))[^\\])*(?:(?P=quote)|\Z))
    | (?P<word>[A-Za-z_][\w$]*)
    | (?P<number>\d[\w.]*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DATA_START = re.compile(rb";?[ \t\f]*\r?\n?")
_OPENING = frozenset({b"(", b"[", b"{"})
_CLOSING = frozenset({b")", b"]", b"}"})
_SELECTS = frozenset({b"SELECT", b"WITH", b"FROM", b"("})
_READS = _SELECTS | {b"SHOW", b"DESCRIBE", b"DESC", b"EXPLAIN", b"EXISTS", b"CHECK"}
_CLIENT_DATA = frozenset({(b"INTO", b"OUTFILE"), (b"FROM", b"INFILE"), (b"INPUT", b"(")})


@dataclass(frozen=True, slots=True)
class Query:
    """A statement to run as it is.

    `format`: the output format it names. `reads_only`: it changes nothing. `selects`: the engine
    can run it block by block. `table`: what an INSERT without separate data writes to.
    """

    format: str | None = None
    reads_only: bool = False
    selects: bool = False
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT with data.

    `target`: the SQL up to SETTINGS, FORMAT or VALUES. `settings`: its SETTINGS clause, or nothing.
    `data_offset`: where the data begins, in bytes.
    """

    target: bytes
    settings: bytes
    table: str
    format: str
    data_offset: int

    def from_file(self, path: str) -> bytes:
        """The same INSERT with its data in a file. `path` needs no quoting."""
        return b"%b FROM INFILE '%b' %b FORMAT %b" % (
            self.target,
            path.encode(),
            self.settings,
            self.format.encode(),
        )


@dataclass(frozen=True, slots=True)
class _Token:
    text: bytes  # words upper-cased, for comparison
    start: int
    end: int
    depth: int


def parse(head: bytes) -> Query | Insert:
    """Read a statement from the start of a request.

    `head` is the whole text of a query, or at least all of an INSERT up to its data (which may be
    binary and is not looked at).

    Raises `ServerError`: SYNTAX_ERROR for an empty query; NOT_IMPLEMENTED for `INTO OUTFILE` and
    `FROM INFILE`, which name files of the client, and for `input()`.
    """
    first = next(_tokens(head), None)
    if first is None:
        raise ServerError(62, "SYNTAX_ERROR", "Syntax error: Empty query")
    if first.text == b"INSERT":
        return _insert(head)
    return _query(head, first)


def full_name(table: str, database: str) -> str:
    """One spelling for a table, however a statement quotes or qualifies it."""
    parts = [part.strip().strip('`"') for part in table.split(".", 1)]
    return ".".join(parts if len(parts) == 2 else [database, *parts])


def _tokens(text: bytes) -> Iterator[_Token]:
    depth = 0
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if kind == "blank":
            continue
        if token in _CLOSING:
            depth = max(0, depth - 1)
        text_for_comparison = token.upper() if kind == "word" else token
        yield _Token(text_for_comparison, match.start(), match.end(), depth)
        if token in _OPENING:
            depth += 1


def _insert(head: bytes) -> Query | Insert:
    """Split an INSERT before its data; without data (INSERT ... SELECT) it is a plain query."""
    tokens = (token for token in _tokens(head) if token.depth == 0)
    table: list[_Token] = []
    named = False
    settings: int | None = None
    for token in tokens:
        if not table:
            if token.text not in {b"INSERT", b"INTO", b"TABLE", b"FUNCTION"}:
                table.append(token)
            continue
        if not named and (token.text == b"." or table[-1].text == b"."):
            table.append(token)
            continue
        named = True
        name = _text(b"".join(head[part.start : part.end] for part in table))
        if token.text in {b"SELECT", b"WITH", b"FROM"}:
            _refuse_client_data(head)
            return Query(table=name)
        if token.text == b"SETTINGS":
            settings = token.start
        split = token.start if settings is None else settings
        target, clause = head[:split], head[split : token.start]
        if token.text == b"VALUES":
            return Insert(target, clause, name, "Values", token.end)
        if token.text == b"FORMAT" and (fmt := next(tokens, None)) is not None:
            data = _DATA_START.match(head, fmt.end)
            offset = data.end() if data else fmt.end
            return Insert(target, clause, name, _text(head[fmt.start : fmt.end]), offset)
    return Query()


def _text(part: bytes) -> str:
    return part.decode("utf-8", "replace")


def _refuse_client_data(head: bytes) -> None:
    previous = b""
    for token in _tokens(head):
        if (previous, token.text) in _CLIENT_DATA:
            what = f"{previous.decode()} {token.text.decode()}"
            raise ServerError(48, "NOT_IMPLEMENTED", f"{what} is not supported over HTTP")
        previous = token.text


def _query(head: bytes, first: _Token) -> Query:
    _refuse_client_data(head)
    fmt: str | None = None
    writes = False
    before = previous = b""
    for token in _tokens(head):
        if token.depth > 0:
            continue
        if previous == b"FORMAT":
            fmt = _text(head[token.start : token.end])
        elif before == b"FORMAT" and token.text not in {b"SETTINGS", b";"}:
            fmt = None  # only SETTINGS may follow a closing FORMAT clause: it was a name
        writes = writes or (first.text == b"WITH" and token.text == b"INSERT")
        before, previous = previous, token.text
    return Query(
        format=fmt,
        reads_only=first.text in _READS and not writes,
        selects=first.text in _SELECTS and not writes,
    )
