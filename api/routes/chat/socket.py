"""The socket of chat: frames in, frames out (`frames` describes both).

A frame that asks for something is decided like a request over HTTP, by the same commands with the
same keys; requests of one socket go to the log in the order they came. Whatever is not answered
when a socket ends may be sent again under the same id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import structlog
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from api.auth import READ, WRITE, Principal, require
from api.limits import Rate
from api.positions import parse
from api.problem import Problem
from api.routes.chat import frames
from api.routes.chat.hub import Hub
from api.routes.chat.line import AGAIN, Line
from api.services import Services
from connectors.asking import Asks, NoVerdict, Refused
from connectors.encode import EncodeError
from schemas.chat import events
from streams.runtime.sink import SinkError

PROTOCOL: Final = "headrace.chat"
IN_FLIGHT_MAX: Final = 64
"""Requests of one socket that are not answered; then it is not read on."""
CLOSE_S: Final = 1.0
FORBIDDEN, TRY_LATER, TOO_BIG, BAD_DATA = 1008, 1013, 1009, 1007

log = structlog.get_logger()
router = APIRouter(tags=["chat"])


@router.websocket("/v1/chat/socket")
async def socket(websocket: WebSocket) -> None:
    """Serve one socket until either side ends it."""
    principal: Principal = websocket.scope["state"]["principal"]
    try:
        require(principal, READ, WRITE)
    except Problem:
        await websocket.close(FORBIDDEN)
        return
    services: Services = websocket.app.state.services
    hub: Hub = services.opened("chat-hub")
    offered = websocket.scope.get("subprotocols") or ()
    await websocket.accept(PROTOCOL if PROTOCOL in offered else None)
    mine = asyncio.current_task()
    assert mine is not None
    try:
        line = await hub.join(principal.subject, mine.cancel)
    except (SinkError, Refused) as error:
        log.warning("no socket now", error=str(error))
        await websocket.close(TRY_LATER)
        return
    session = Session(line, hub, services.opened("chat-asking"), websocket.app.state.rate)
    code = 0
    writing = asyncio.create_task(_write(websocket, line))
    try:
        code = await _read(websocket, session)
    except asyncio.CancelledError:
        if not line.code:
            raise
        mine.uncancel()
    finally:
        writing.cancel()
        session.end()
        await hub.part(line)
    await _close(websocket, line.code or code)


async def _read(websocket: WebSocket, session: Session) -> int:
    """Take frames until the client ends; returns the code to close with, 0 for none."""
    try:
        async for text in _texts(websocket):
            if len(text) > frames.CHARS_MAX:
                return TOO_BIG
            for one in text.split("\n"):
                await session.take(frames.parse(one))
    except frames.BadFrame as error:
        session.line.offer(frames.refused("", "", 422, "bad-frame", str(error)))
        await session.line.sent()
        return BAD_DATA
    return 0


async def _texts(websocket: WebSocket) -> AsyncIterator[str]:
    with suppress(WebSocketDisconnect):
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                raise frames.BadFrame("frames are text")
            yield text


async def _write(websocket: WebSocket, line: Line) -> None:
    with suppress(WebSocketDisconnect, RuntimeError, OSError):  # the reader ends, too
        while True:
            await websocket.send_text(await line.next())


async def _close(websocket: WebSocket, code: int) -> None:
    if code and websocket.application_state is WebSocketState.CONNECTED:
        with suppress(TimeoutError, RuntimeError, OSError, WebSocketDisconnect):
            async with asyncio.timeout(CLOSE_S):
                await websocket.close(code)


class Session:
    """What one socket asks for."""

    def __init__(self, line: Line, hub: Hub, asking: Asks, rate: Rate) -> None:
        self.line = line
        self._hub = hub
        self._asking = asking
        self._rate = rate
        self._running: set[asyncio.Task[None]] = set()
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)

    def end(self) -> None:
        """Nobody hears the answers any more."""
        for task in self._running:
            task.cancel()

    async def take(self, frame: frames.Frame) -> None:
        """Do what a frame asks; returns before it is done, in order for what goes to the log."""
        self.line.heard_s = time.monotonic()
        try:
            self._rate.take(self.line.user)
        except Problem as problem:
            self._refuse(frame, problem.status_code, problem.kind, str(problem.detail))
            return
        match frame:
            case frames.Ping():
                self.line.offer(frames.PONG)
            case frames.Typing():
                await self._hub.typing(self.line, frame.conversation_id)
            case frames.Close():
                self._stop_opening(frame.conversation_id)
                self._hub.leave(self.line, frame.conversation_id)
            case frames.Open():
                self._stop_opening(frame.conversation_id)
                self._opening[frame.conversation_id] = await self._spawn(self._open(frame))
            case frames.Receipt():
                user = self.line.user
                row = events.MoveReceipt(frame.conversation_id, user, frame.delivered, frame.read)
                await self._spawn(self._ask(row, "", frame))
            case frames.Send():
                await self._spawn(self._ask(*self._message(frame), frame))
            case frames.Edit() | frames.Delete():
                body = frame.body if isinstance(frame, frames.Edit) else None
                change = events.ChangeMessage(frame.conversation_id, self.line.user, frame.of, body)
                await self._spawn(self._ask(change, frame.ref, frame))

    def _message(self, frame: frames.Send) -> tuple[events.SendMessage, str]:
        return events.SendMessage(
            frame.conversation_id,
            self.line.user,
            frame.client_msg_id,
            frame.body,
            frame.reply_to,
        ), frame.client_msg_id

    async def _ask(self, row: Any, ref: str, frame: frames.Frame) -> None:
        # The same key as over HTTP: `api.commands.Asked.key_for`.
        key = f"{self.line.user}\n{row.conversation_id}\n{ref}" if ref else ""
        try:
            told = await self._asking.ask(events.COMMANDS, row, key)
        except Refused as error:
            self._refuse(frame, error.status, error.code, error.detail)
        except EncodeError as error:
            self._refuse(frame, 422, "invalid-input", f"{error.field} does not fit the schema")
        except NoVerdict as error:
            log.warning("no verdict for a socket", error=str(error))
            self.line.cut(AGAIN)  # it may be recorded or not: the client sends it again
        else:
            if ref:
                self.line.offer(frames.ack(ref, row.conversation_id, told["seq"]))

    async def _open(self, frame: frames.Open) -> None:
        try:
            written = parse(frame.position)
            await self._hub.open(self.line, frame.conversation_id, frame.after, written)
        except Problem as problem:
            self._refuse(frame, problem.status_code, problem.kind, str(problem.detail))
        except Refused as error:
            self._refuse(frame, error.status, error.code, error.detail)
        except SinkError as error:
            log.warning("no history for a socket", error=str(error))
            self.line.cut(AGAIN)

    def _stop_opening(self, conversation_id: str) -> None:
        task = self._opening.pop(conversation_id, None)
        if task is not None:
            task.cancel()

    async def _spawn(self, work: Any) -> asyncio.Task[None]:
        await self._room.acquire()
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()
        if not task.cancelled() and task.exception() is not None:
            log.error("a frame failed", error=repr(task.exception()))
            self.line.cut(AGAIN)

    def _refuse(self, frame: frames.Frame, status: int, code: str, detail: str) -> None:
        if isinstance(frame, frames.Ping):
            return
        ref = getattr(frame, "ref", "") or getattr(frame, "client_msg_id", "")
        told = code.replace("_", "-")
        self.line.offer(frames.refused(ref, frame.conversation_id, status, told, detail))
