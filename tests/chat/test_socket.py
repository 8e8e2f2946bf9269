"""The socket's edge: who gets one, what is a frame, what is answered, and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI

from api.app import create_app
from api.auth import READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.routes.chat import frames
from api.routes.chat.page import FILES, POLICY, PREFIX
from api.services import Services
from connectors.asking import NoVerdict, Refused
from streams.runtime.settings import ApiLimits
from tests.api.conftest import AUDIENCE, ISSUER, MemoryProducer, client_of
from tests.chat.desk import ROOM, told
from tests.chat.world import World


class Wire:
    """The client's end of one socket, over the application itself."""

    def __init__(self, app: FastAPI, *protocols: str, **headers: str) -> None:
        self._in: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._out: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._in.put_nowait({"type": "websocket.connect"})
        scope = {
            **{"type": "websocket", "asgi": {"version": "3.0"}, "http_version": "1.1"},
            **{"scheme": "ws", "path": "/v1/chat/socket", "raw_path": b"/v1/chat/socket"},
            **{"query_string": b"", "root_path": "", "client": ("127.0.0.1", 1)},
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "subprotocols": list(protocols),
            "state": {},
        }
        self.served = asyncio.create_task(app(scope, self._in.get, self._out.put))  # type: ignore[arg-type]
        self._frames: list[dict[str, Any]] = []

    def send(self, **frame: Any) -> None:
        self.text(json.dumps(frame))

    def text(self, text: str) -> None:
        self._in.put_nowait({"type": "websocket.receive", "text": text})

    async def message(self) -> dict[str, Any]:
        return await asyncio.wait_for(self._out.get(), 5)

    async def frame(self, *kinds: str) -> dict[str, Any]:
        """The next frame, of one of these kinds if any are given."""
        while True:
            if not self._frames:
                message = await self.message()
                assert message["type"] == "websocket.send", message
                self._frames = [json.loads(line) for line in message["text"].split("\n")]
            found = self._frames.pop(0)
            if not kinds or found["type"] in kinds:
                return found

    async def closed(self) -> int:
        """The code that the socket is closed with."""
        while True:
            message = await self.message()
            if message["type"] == "websocket.close":
                await self.served
                return int(message["code"])

    async def end(self) -> None:
        self._in.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(self.served, 5)


class Place:
    """The application with a world behind its sockets."""

    def __init__(self, issuer: DevIssuer, limits: ApiLimits | None = None) -> None:
        self.world = World()
        self.world.desk.start("alice", "bob")
        self.world.catch_up()
        self.issuer = issuer
        self.down = False
        services = Services(
            producer=MemoryProducer(),
            verifier=Verifier(KeyFile(issuer.folder / "jwks.json"), ISSUER, AUDIENCE),
            readers={"chat-hub": self.world.hub, "chat-asking": self, "chat-presence": self.world},
        )

        @asynccontextmanager
        async def opener() -> AsyncIterator[Services]:
            yield services

        self.app = create_app(opener, limits)
        self.app.state.services = services

    async def ask(self, topic: Any, row: Any, key: str = "") -> dict[str, Any]:
        """As a decider over the log would answer; the log brings what it decides."""
        if self.down:
            raise NoVerdict("down")
        answer = self.world.desk.log.send(row, idempotency_key=key)
        self.world.catch_up()
        body = told(answer)
        if answer.status >= 400:
            raise Refused(answer.status, body["code"], body["detail"])
        return body

    def wire(self, user: str = "bob", *scopes: str) -> Wire:
        token = self.issuer.token(user, list(scopes or (READ, WRITE)), 600)
        return Wire(self.app, "headrace.chat", f"bearer.{token}")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> DevIssuer:
    made = DevIssuer(tmp_path_factory.mktemp("keys"), ISSUER, AUDIENCE)
    made.key()
    return made


@pytest.fixture
async def place(issuer: DevIssuer) -> AsyncIterator[Place]:
    made = Place(issuer)
    yield made
    await made.world.hub.close()


async def test_a_socket_needs_a_token_however_it_is_sent(place: Place) -> None:
    token = place.issuer.token("bob", [READ, WRITE], 600)
    for wire in (
        Wire(place.app),
        Wire(place.app, "headrace.chat"),
        Wire(place.app, "headrace.chat", "bearer.nonsense"),
        Wire(place.app, f"bearer.{token}", authorization=f"Bearer {token}"),
        place.wire("bob", READ),
    ):
        assert await wire.closed() == 1008
    by_header = Wire(place.app, authorization=f"Bearer {token}")
    assert (await by_header.message())["subprotocol"] is None
    by_protocol = place.wire()
    assert (await by_protocol.message())["subprotocol"] == "headrace.chat"
    assert (await by_protocol.frame())["userId"] == "bob"
    for one in (by_header, by_protocol):
        await one.end()


async def test_what_is_said_is_acknowledged_and_told_in_one_order(place: Place) -> None:
    alice, bob = place.wire("alice"), place.wire("bob")
    for wire in (alice, bob):
        await wire.message()
        await wire.frame("welcome")
        wire.send(type="open", conversationId=ROOM, after=0)
        await wire.frame("live")
    bob.send(type="send", conversationId=ROOM, clientMsgId="m1", body="hello\nthere ü")
    bob.send(type="send", conversationId=ROOM, clientMsgId="m1", body="hello\nthere ü")
    bob.send(type="edit", conversationId=ROOM, ref="e1", of=2, body="hullo")
    bob.send(type="delete", conversationId=ROOM, ref="d1", of=2)
    acks = [await bob.frame("ack") for _ in range(4)]
    assert [(one["ref"], one["seq"]) for one in acks] == [
        ("m1", 2),
        ("m1", 2),
        ("e1", 3),
        ("d1", 4),
    ]
    entries = [await alice.frame("entry") for _ in range(3)]
    assert [(e["seq"], e["change"], e["of"]) for e in entries] == [
        (2, "sent", 0), (3, "edited", 2), (4, "deleted", 2),
    ]  # fmt: skip
    alice.send(type="receipt", conversationId=ROOM, delivered=4, read=2)
    assert (await bob.frame("receipt"))["read"] == 2
    alice.send(type="typing", conversationId=ROOM)
    assert (await bob.frame("typing"))["userId"] == "alice"
    alice.send(type="ping")
    await alice.frame("pong")
    alice.send(type="close", conversationId=ROOM)
    bob.send(type="send", conversationId=ROOM, clientMsgId="m2", body="gone?")
    await bob.frame("ack")
    alice.send(type="ping")
    assert (await alice.frame())["type"] in {"receipt", "pong"}
    for wire in (alice, bob):
        await wire.end()
    assert place.world.beats == []


async def test_what_is_refused_says_what_and_why(place: Place) -> None:
    wire = place.wire("eve")
    await wire.message()
    wire.send(type="open", conversationId=ROOM)
    assert (await wire.frame("refused"))["code"] == "no-conversation"
    wire.send(type="open", conversationId=ROOM, position="nowhere")
    assert (await wire.frame("refused"))["code"] == "invalid-input"
    wire.send(type="send", conversationId=ROOM, clientMsgId="m1", body="hi")
    refused = await wire.frame("refused")
    assert (refused["ref"], refused["status"]) == ("m1", 404)
    await wire.end()


async def test_without_a_verdict_the_client_has_to_come_again(place: Place) -> None:
    wire = place.wire()
    await wire.message()
    place.down = True
    wire.send(type="send", conversationId=ROOM, clientMsgId="m1", body="hi")
    assert await wire.closed() == 4009


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"x"', "{}", '{"type":"shout"}', '{"type":"open"}',
     '{"type":"open","conversationId":1}', '{"type":"open","conversationId":""}',
     '{"type":"open","conversationId":"r","after":-1}',
     '{"type":"open","conversationId":"r","after":1.5}',
     '{"type":"send","conversationId":"r","clientMsgId":"m"}', '{"type":"ping"}\n'],
)  # fmt: skip
async def test_what_is_no_frame_ends_the_socket(place: Place, text: str) -> None:
    wire = place.wire()
    await wire.message()
    wire.text(text)
    assert (await wire.frame("refused"))["code"] == "bad-frame"
    assert await wire.closed() == 1007


async def test_a_frame_has_a_bound(place: Place) -> None:
    wire = place.wire()
    await wire.message()
    wire.text(" " * (frames.CHARS_MAX + 1))
    assert await wire.closed() == 1009


async def test_frames_count_against_the_rate_of_their_sender(issuer: DevIssuer) -> None:
    place = Place(issuer, ApiLimits(rate_per_s=1, rate_burst=5))
    wire = place.wire()
    await wire.message()
    for n in range(10):
        wire.send(type="send", conversationId=ROOM, clientMsgId=f"m{n}", body="hi")
    refused = [await wire.frame("refused") for _ in range(5)]
    assert {(one["status"], one["code"]) for one in refused} == {(429, "rate-limited")}
    await wire.end()
    await place.world.hub.close()


async def test_the_page_needs_no_token_and_runs_nothing_but_its_own(place: Place) -> None:
    async with client_of(place.app) as client:
        for name, media_type in FILES.items():
            answer = await client.get(PREFIX + name)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(media_type)
            assert answer.headers["content-security-policy"] == POLICY
            assert "unsafe" not in POLICY
        html = (await client.get(PREFIX + "page.html")).text
        assert (await client.get(PREFIX + "other")).status_code == 404
    for inline in ("<style", "onclick=", "onload=", "javascript:", "style="):
        assert inline not in html
    assert html.count("<script") == html.count('<script type="module" src="page.mjs"></script>')
