"""One request's answer: its headers, its coding and its body."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator

from aiohttp import web

from infra.clickhouse import codec
from infra.clickhouse.engine import Counts, Piece, Session
from infra.clickhouse.errors import ServerError, in_stream
from infra.clickhouse.formats import Joiner, content_type

log = logging.getLogger(__name__)

_DISPLAY_NAME = "chdb"
_LOG_CHARS = 500


class Exchange:
    """One request's answer: headers, coding and body."""

    def __init__(
        self, request: web.Request, query_id: str, timezone: str, send_timeout_s: float
    ) -> None:
        self.request = request
        self.query_id = query_id
        self._send_timeout_s = send_timeout_s
        self._broken = False
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

    def hang_up_if_broken(self) -> None:
        """Close the connection under a body that ended with an error."""
        if self._broken and self.request.transport is not None:
            self.request.transport.close()

    def log_failure(self, error: ServerError) -> None:
        log.warning("query %s failed: %s", self.query_id, " ".join(error.text.split())[:_LOG_CHARS])

    def failure(self, error: ServerError) -> web.Response:
        headers = {**self._headers, "X-ClickHouse-Exception-Code": str(error.code)}
        if error.status == 401:
            headers["WWW-Authenticate"] = 'Basic realm="ClickHouse server HTTP API"'
        answer = web.Response(
            status=error.status,
            body=f"{error.text}\n".encode(),
            headers={**headers, "Content-Type": content_type(None)},
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
        self,
        first: Piece,
        rest: AsyncIterator[Piece],
        session: Session,
        join: Joiner,
        fmt: str,
    ) -> web.StreamResponse:
        """Send block by block, one held at a time.

        A result of one block goes out whole, with true counts and as one status; in a longer one
        the counts are those of the first two blocks, and a failure ends the body with the tagged
        error and a closed connection, so that no client takes it for complete.
        """
        second = await anext(rest, None)
        if second is None:
            return await self.whole(Piece(join.join(first.data) + join.end(), first.counts), fmt)
        tag = secrets.token_hex(8)
        headers = self._success(fmt, first.counts + second.counts)
        headers["X-ClickHouse-Exception-Tag"] = tag
        if self._coding is not None:
            headers["Content-Encoding"] = self._coding
        encoder = codec.encoder(self._coding)
        response = web.StreamResponse(headers=headers)
        await response.prepare(self.request)

        def encode(piece: Piece) -> bytes:
            return encoder.encode(join.join(piece.data))

        try:
            for piece in (first, second):
                await self._send(response, await session.call(encode, piece))
            async for piece in rest:
                await self._send(response, await session.call(encode, piece))
        except ServerError as error:
            self.log_failure(error)
            await response.write(encoder.encode(in_stream(error, tag)) + encoder.finish())
            self._broken = True
            return response
        await response.write(encoder.encode(join.end()) + encoder.finish())
        return response

    async def _send(self, response: web.StreamResponse, data: bytes) -> None:
        """A client that takes nothing for too long must not keep an engine thread."""
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await response.write(data)
        except TimeoutError:
            if self.request.transport is not None:
                self.request.transport.abort()
            raise ConnectionError("the client does not read its result") from None

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
            "Content-Type": content_type(fmt),
        }
        if fmt is not None:
            headers["X-ClickHouse-Format"] = fmt
        return headers
