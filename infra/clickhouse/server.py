"""ClickHouse's HTTP interface over the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from dataclasses import dataclass
from typing import IO

from aiohttp import web

from infra.clickhouse import codec
from infra.clickhouse.engine import Engine, Piece
from infra.clickhouse.errors import ServerError
from infra.clickhouse.exchange import Exchange
from infra.clickhouse.formats import joiner
from infra.clickhouse.request import Asked, Credentials, query_id
from infra.clickhouse.statement import Insert, Query, full_name, parse

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """What one client can cost. Bytes are counted after decompression.

    `held_result_bytes` bounds results in formats that cannot be sent in pieces;
    `send_timeout_s` how long one piece of a result may wait for its reader; `query_memory_bytes` is
    the engine's `max_memory_usage` where a query sets none.
    """

    body_bytes: int = 1 << 30
    query_bytes: int = 1 << 20
    memory_body_bytes: int = 1 << 24
    receive_timeout_s: float = 60.0
    send_timeout_s: float = 60.0
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
        exchange = Exchange(
            request, query_id(request.query), self._timezone, self._limits.send_timeout_s
        )
        self._requests += 1
        try:
            return await self._answer(exchange)
        except ServerError as error:
            exchange.log_failure(error)
            return exchange.failure(error)
        except (ConnectionError, asyncio.CancelledError):
            log.warning("query %s failed: the client went away", exchange.query_id)
            raise
        except OSError as error:  # the request's data did not go into the spool
            failure = ServerError.from_os(error)
            exchange.log_failure(failure)
            return exchange.failure(failure)
        finally:
            self._requests -= 1
            exchange.hang_up_if_broken()

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
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
            statement = await asyncio.to_thread(parse, head)
            fits = len(head) <= self._limits.query_bytes
            if isinstance(statement, Insert):
                if not (fits and statement.format == "Values"):
                    body.seek(statement.data_offset)
                    return await self._insert(exchange, asked, statement, body)
                # VALUES are SQL: DEFAULT, parameters and expressions need the engine's parser.
                statement = Query(table=statement.table)
        if not fits:
            raise ServerError(
                552, "QUERY_IS_TOO_LARGE", f"Max query size is {self._limits.query_bytes} bytes"
            )
        return await self._query(exchange, asked, statement, head)

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

    def _settings(self, exchange: Exchange, asked: Asked) -> dict[str, str]:
        settings = {
            "implicit_select": "0",
            "max_memory_usage": str(self._limits.query_memory_bytes),
            **asked.settings,
            "log_comment": exchange.query_id,
        }
        if exchange.request.method == "GET" and settings.get("readonly", "0") == "0":
            settings["readonly"] = "2"
        return settings

    def _turn(
        self, asked: Asked, table: str | None
    ) -> contextlib.AbstractAsyncContextManager[object]:
        if table is None:
            return contextlib.nullcontext()
        return self._engine.table_lock(full_name(table, asked.database or "default"))

    async def _insert(
        self, exchange: Exchange, asked: Asked, insert: Insert, body: IO[bytes]
    ) -> web.StreamResponse:
        settings = self._settings(exchange, asked)
        # In order: blocks keep their numbers under a deduplication token, and what a failed INSERT
        # leaves is a beginning of its data.
        settings.setdefault("max_insert_threads", "1")
        async with (
            self._turn(asked, insert.table),
            self._engine.session(exchange.query_id, reads_only=False) as session,
        ):
            await session.configure(asked.database, settings)
            counts = await session.insert(insert, body)
        return await exchange.whole(Piece(b"", counts), None)

    async def _query(
        self, exchange: Exchange, asked: Asked, query: Query, sql: bytes
    ) -> web.StreamResponse:
        fmt = query.format or asked.default_format or "TabSeparated"
        settings = self._settings(exchange, asked)
        join = joiner(fmt) if query.selects else None
        if join is None:
            settings.setdefault("max_result_bytes", str(self._limits.held_result_bytes))
        async with (
            self._turn(asked, query.table),
            self._engine.session(exchange.query_id, reads_only=query.reads_only) as session,
        ):
            await session.configure(asked.database, settings)
            if session.statement_count(sql) > 1:
                raise ServerError(
                    62, "SYNTAX_ERROR", "Syntax error (Multi-statements are not allowed)"
                )
            if join is not None:
                async with contextlib.aclosing(session.stream(sql, fmt, asked.params)) as pieces:
                    first = await anext(pieces, None)
                    if first is not None:
                        return await exchange.stream(first, pieces, session, join, fmt)
            # An empty stream has no bytes at all, not even those of a format's frame.
            result = await session.run(sql, fmt, asked.params)
        has_result = query.reads_only or bool(result.data)
        return await exchange.whole(result, fmt if has_result else None)


async def _ok(_: web.Request) -> web.Response:
    return web.Response(body=b"Ok.\n", headers={"Content-Type": "text/plain; charset=UTF-8"})
