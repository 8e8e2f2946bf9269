"""The load generator: every request gets its answer, counted once, whatever the server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.bench.http import Client, closed_loop, figures, open_loop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"


@asynccontextmanager
async def served(answer: Callable[[int], bytes]) -> AsyncIterator[Client]:
    """A server whose answer n is `answer(n)`, in two pieces; b"": it hangs up."""
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"Content-Length: 2" in head:
                    assert await reader.readexactly(2) == b"{}"
                raw, count = answer(count), count + 1
                if not raw:
                    break
                writer.write(raw[:20])
                await asyncio.sleep(0)
                writer.write(raw[20:])
        except asyncio.IncompleteReadError:
            pass  # the client is gone
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}", "t") as client:
        yield client
    server.close()
    await asyncio.sleep(0.01)  # both sides notice that the other has hung up


async def test_an_open_loop_counts_each_request_once() -> None:
    async with served(lambda n: BUSY if n % 5 == 0 else b"" if n % 5 == 1 else OK) as client:
        request = client.request("POST", "/", b"{}")
        taken = await open_loop(client, 2_000, 0.1, lambda _: request, 200)
    assert len(taken.ms) == 120
    assert taken.refused == {503: 40, 0: 40}
    assert len(taken.late_ms) == 200


async def test_a_closed_loop_ends_with_every_answer_heard() -> None:
    sent = 0

    def request(number: int) -> bytes:
        nonlocal sent
        sent += 1
        return client.request("GET", f"/{number}")

    async with served(lambda _: OK) as client:
        taken = await closed_loop(client, 3, 0.05, request, 200)
    assert len(taken.ms) == sent > 0
    assert figures([taken])["refused"] == 0


async def test_status_head_and_body_of_an_answer() -> None:
    async with served(lambda _: OK) as client:
        status, head, body = await client.ask(client.request("GET", "/"))
        assert (status, body) == (200, b"ok")
        assert b"content-length: 2" in head


async def test_a_server_that_is_not_there_is_no_answer() -> None:
    async with Client("http://127.0.0.1:9", "t") as client:
        assert (await client.ask(client.request("GET", "/")))[0] == 0
