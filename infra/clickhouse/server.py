"""ClickHouse's HTTP interface over the engine."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import IO

from aiohttp import web

from infra.clickhouse import codec
from infra.clickhouse.engine import Counts, Engine, Piece, Session, streams
from infra.clickhouse.errors import ServerError, in_stream
from infra.clickhouse.request import Asked, Credentials
from infra.clickhouse.statement import Insert, Query, parse

log = logging.getLogger(__name__)

_DISPLAY_NAME = "chdb"
_LOG_CHARS = 500
_READ_BUFFER_BYTES = 1 << 18
_TEXT = "text/plain; charset=UTF-8"
_CONTENT_TYPES = {
    "tabseparated": "text/tab-separated-values; charset=UTF-8",
    "tsv": "text/tab-separated-values; charset=UTF-8",
    "csv": "text/csv; charset=UTF-8; header=absent",
    "csvwithnames": "text/csv; charset=UTF-8; header=present",
    "json": "application/json; charset=UTF-8",
    "jsoncompact": "application/json; charset=UTF-8",
    "jsoneachrow": "application/x-ndjson; charset=UTF-8",
    "native": "application/octet-stream",
    "arrow": "application/octet-stream",
    "arrowstream": "application/octet-stream",
    "parquet": "application/octet-stream",
    "rowbinary": "application/octet-stream",
}


@dataclass(frozen=True)
class Limits:
    """What one client can cost. Bytes are counted after decompression.

    `held_result_bytes` bounds results in formats that cannot be sent in pieces;
    `query_memory_bytes` is the engine's `max_memory_usage` where a query sets none.
    """

    body_bytes: int = 1 << 30
    query_bytes: int = 1 << 24
    memory_body_bytes: int = 1 << 24
    receive_timeout_s: float = 60.0
    concurrent_requests: int = 128
    held_result_bytes: int = 1 << 29
    query_memory_bytes: int = 4 << 30


class Server:
    """The request handlers. One instance per engine."""

    def __init__(self, engine: Engine, credentials: Credentials, limits: Limits) -> None:
        self._engine = engine
        self._credentials = credentials
        self._limits = limits
        self._timezone = engine.scalar("SELECT timezone()")
        self._requests = 0

    def app(self) -> web.Application:
        """Routes: `/` and `/query` for queries, `/ping` and `/replicas_status` for probes."""
        app = web.Application()
        app.router.add_get("/ping", _ok)
        app.router.add_get("/replicas_status", _ok)
        for path in ("/", "/query"):
            app.router.add_get(path, self.query, allow_head=False)
            app.router.add_post(path, self.query)
        return app

    async def query(self, request: web.Request) -> web.StreamResponse:
        """Answer one query; a failure before the first byte becomes ClickHouse's error answer."""
        if request.method == "GET" and not request.query_string:
            return await _ok(request)
        query_id = request.query.get("query_id") or str(uuid.uuid4())
        exchange = _Exchange(request, query_id, self._timezone)
        self._requests += 1
        try:
            return await self._answer(exchange)
        except ServerError as error:
            exchange.log_failure(error)
            return exchange.failure(error)
        except (ConnectionError, asyncio.CancelledError):
            log.warning("query %s failed: the client went away", query_id)
            raise
        finally:
            self._requests -= 1

    async def _answer(self, exchange: _Exchange) -> web.StreamResponse:
        request = exchange.request
        if self._requests > self._limits.concurrent_requests:
            raise ServerError(202, "TOO_MANY_SIMULTANEOUS_QUERIES", "Too many requests")
        self._check_caller(request)
        asked = Asked.read(request.headers, request.query)
        with tempfile.SpooledTemporaryFile(
            max_size=self._limits.memory_body_bytes, dir=str(self._engine.spool_directory)
        ) as body:
            if asked.query:
                body.write(asked.query.encode("utf-8", "surrogateescape") + b"\n")
            await self._receive(request, body)
            body.seek(0)
            head = body.read(self._limits.query_bytes + 1)
            statement = parse(head)
            if isinstance(statement, Insert):
                body.seek(statement.data_offset)
                return await self._insert(exchange, asked, statement, body)
            if len(head) > self._limits.query_bytes:
                raise ServerError(
                    552, "QUERY_IS_TOO_LARGE", f"Max query size is {self._limits.query_bytes} bytes"
                )
            sql = head.decode("utf-8", "surrogateescape")
        return await self._query(exchange, asked, statement, sql)

    def _check_caller(self, request: web.Request) -> None:
        self._credentials.check(request.headers, request.query)
        if self._credentials.password is None and "Origin" in request.headers:
            raise ServerError(
                497, "ACCESS_DENIED", "A server without a password does not answer web pages"
            )

    async def _receive(self, request: web.Request, body: IO[bytes]) -> None:
        """Take in the whole body first, so that a slow or lost client holds no engine thread."""
        if request.content_type.startswith("multipart/"):
            raise ServerError(48, "NOT_IMPLEMENTED", "Multipart bodies are not supported")
        decoder = codec.decoder(request.headers.get("Content-Encoding", ""))
        left = self._limits.body_bytes
        try:
            async with asyncio.timeout(self._limits.receive_timeout_s):
                async for data in request.content.iter_any():
                    for piece in decoder.feed(data):
                        left -= len(piece)
                        if left < 0:
                            raise ServerError(
                                552,
                                "QUERY_IS_TOO_LARGE",
                                f"The body is larger than {self._limits.body_bytes} bytes",
                            )
                        body.write(piece)
        except TimeoutError:
            raise ServerError(
                159, "TIMEOUT_EXCEEDED", "The request body did not arrive in time"
            ) from None
        decoder.finish()

    def _settings(self, exchange: _Exchange, asked: Asked) -> dict[str, str]:
        settings = {
            "implicit_select": "0",
            "max_memory_usage": str(self._limits.query_memory_bytes),
            **asked.settings,
            "log_comment": exchange.query_id,
        }
        if exchange.request.method == "GET" and settings.get("readonly", "0") == "0":
            settings["readonly"] = "2"
        return settings

    async def _insert(
        self, exchange: _Exchange, asked: Asked, insert: Insert, body: IO[bytes]
    ) -> web.StreamResponse:
        settings = self._settings(exchange, asked)
        database = asked.database or "default"
        async with (
            self._engine.table_lock(database, insert.table),
            self._engine.session(exchange.query_id, reads_only=False) as session,
        ):
            await session.configure(asked.database, settings)
            counts = await session.insert(insert.sql, insert.format, body, _READ_BUFFER_BYTES)
        return await exchange.whole(Piece(b"", counts), None)

    async def _query(
        self, exchange: _Exchange, asked: Asked, statement: Query, sql: str
    ) -> web.StreamResponse:
        fmt = statement.format or asked.default_format or "TabSeparated"
        settings = self._settings(exchange, asked)
        streamed = statement.selects and streams(fmt)
        if not streamed:
            settings.setdefault("max_result_bytes", str(self._limits.held_result_bytes))
        async with self._engine.session(
            exchange.query_id, reads_only=statement.reads_only
        ) as session:
            await session.configure(asked.database, settings)
            if session.statement_count(sql) > 1:
                raise ServerError(
                    62, "SYNTAX_ERROR", "Syntax error (Multi-statements are not allowed)"
                )
            if not streamed:
                result = await session.run(sql, fmt, asked.params)
                answers = statement.reads_only or bool(result.data)
                return await exchange.whole(result, fmt if answers else None)
            async with aclosing(session.stream(sql, fmt, asked.params)) as pieces:
                return await exchange.stream(pieces, session, fmt)


class _Exchange:
    """One request's answer: headers, coding and body."""

    def __init__(self, request: web.Request, query_id: str, timezone: str) -> None:
        self.request = request
        self.query_id = query_id
        self._began = time.monotonic_ns()
        self._headers = {
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Server-Display-Name": _DISPLAY_NAME,
            "X-ClickHouse-Timezone": timezone,
        }
        wanted = request.query.get("enable_http_compression", "0") not in {"0", "false"}
        self._coding = (
            codec.negotiate(request.headers.get("Accept-Encoding", "")) if wanted else None
        )

    def log_failure(self, error: ServerError) -> None:
        log.warning("query %s failed: %s", self.query_id, " ".join(error.text.split())[:_LOG_CHARS])

    def failure(self, error: ServerError) -> web.Response:
        headers = {**self._headers, "X-ClickHouse-Exception-Code": str(error.code)}
        if error.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="ClickHouse server HTTP API"'
        answer = web.Response(
            status=error.status,
            body=f"{error.text}\n".encode(),
            headers={**headers, "Content-Type": _TEXT},
        )
        if not self.request.content.is_eof():
            answer.force_close()  # the rest of a refused body is not worth reading
        return answer

    async def whole(self, piece: Piece, fmt: str | None) -> web.Response:
        """An answer that is complete before its first byte goes out."""
        headers = self._success(fmt, piece.counts)
        data = piece.data
        if data and self._coding is not None:
            headers["Content-Encoding"] = self._coding
            encoder = codec.encoder(self._coding)
            data = await asyncio.to_thread(lambda: encoder.encode(piece.data) + encoder.finish())
        return web.Response(body=data, headers=headers)

    async def stream(
        self, pieces: AsyncIterator[Piece], session: Session, fmt: str
    ) -> web.StreamResponse:
        """Send block by block. A result of one block is answered whole, with true counts."""
        first = await anext(pieces, Piece(b"", Counts()))
        second = await anext(pieces, None)
        if second is None:
            return await self.whole(first, fmt)
        tag = secrets.token_hex(8)
        headers = self._success(fmt, first.counts + second.counts)
        headers["X-ClickHouse-Exception-Tag"] = tag
        if self._coding is not None:
            headers["Content-Encoding"] = self._coding
        encoder = codec.encoder(self._coding)
        response = web.StreamResponse(headers=headers)
        await response.prepare(self.request)
        try:
            for piece in (first, second):
                await response.write(await session.call(encoder.encode, piece.data))
            async for piece in pieces:
                await response.write(await session.call(encoder.encode, piece.data))
        except ServerError as error:
            self.log_failure(error)
            await response.write(encoder.encode(in_stream(error, tag)) + encoder.finish())
            if self.request.transport is not None:
                self.request.transport.close()  # no closing chunk: nobody takes this for complete
            return response
        await response.write(encoder.finish())
        return response

    def _success(self, fmt: str | None, counts: Counts) -> dict[str, str]:
        summary = {
            "read_rows": counts.read_rows,
            "read_bytes": counts.read_bytes,
            "written_rows": counts.written_rows,
            "written_bytes": counts.written_bytes,
            "total_rows_to_read": counts.read_rows,
            "result_rows": counts.result_rows,
            "result_bytes": counts.result_bytes,
            "elapsed_ns": time.monotonic_ns() - self._began,
        }
        headers = {
            **self._headers,
            "X-ClickHouse-Summary": json.dumps(
                {name: str(value) for name, value in summary.items()}
            ),
            "Content-Type": _CONTENT_TYPES.get((fmt or "").lower(), _TEXT),
        }
        if fmt is not None:
            headers["X-ClickHouse-Format"] = fmt
        return headers


async def _ok(_: web.Request) -> web.Response:
    return web.Response(body=b"Ok.\n", headers={"Content-Type": _TEXT})
