"""A TCP proxy that breaks a chosen request: half of it, or only its reply."""

from __future__ import annotations

import socket
import threading
from enum import StrEnum


class Fault(StrEnum):
    """What happens to the chosen request."""

    CUT = "cut"
    """Half of its first bytes reach the server, then the line is dead."""
    NO_REPLY = "no_reply"
    """All of it reaches the server; the reply is dropped with the line."""


class Proxy:
    """Forwards to `127.0.0.1:target`, of several targets each at a port of its own; counts
    requests (a change of direction of a line) once armed.
    """

    def __init__(self, *targets: int) -> None:
        self._listeners = {target: socket.create_server(("127.0.0.1", 0)) for target in targets}
        self.ports = {target: one.getsockname()[1] for target, one in self._listeners.items()}
        self.port: int = self.ports[targets[0]]
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._left = 0
        self.fired = False
        self.replied_bytes = 0
        for target in targets:
            threading.Thread(target=self._accept, args=(target,), daemon=True).start()

    def arm(self, fault: Fault, request: int) -> None:
        """Let `request` requests pass (counted from now) and break the one after them."""
        with self._lock:
            self._fault, self._left, self.fired = fault, request, False

    def disarm(self) -> None:
        """Forward everything."""
        with self._lock:
            self._fault = None

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()

    def _accept(self, target: int) -> None:
        while True:
            try:
                client, _ = self._listeners[target].accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", target))
            line = _Line(self, client, server)
            threading.Thread(target=line.requests, daemon=True).start()
            threading.Thread(target=line.replies, daemon=True).start()

    def _verdict(self) -> Fault | None:
        """The fate of a request that begins now."""
        with self._lock:
            if self._fault is None:
                return None
            if self._left:
                self._left -= 1
                return None
            fault, self._fault, self.fired = self._fault, None, True
            return fault


class _Line:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._replied = True
        self._mute = False

    def requests(self) -> None:
        while data := _received(self._client):
            fate = self._proxy._verdict() if self._replied else None
            self._replied = False
            if fate is Fault.CUT:
                self._server.sendall(data[: len(data) // 2])
                break
            self._mute = self._mute or fate is Fault.NO_REPLY
            self._server.sendall(data)
        self._close()

    def replies(self) -> None:
        while data := _received(self._server):
            if self._mute:
                break
            self._replied = True
            self._proxy.replied_bytes += len(data)
            try:
                self._client.sendall(data)
            except OSError:
                break
        self._close()

    def _close(self) -> None:
        for side in (self._client, self._server):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                side.close()


def _received(side: socket.socket) -> bytes:
    try:
        return side.recv(65_536)
    except OSError:
        return b""
