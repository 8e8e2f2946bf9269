"""A receiver of webhooks for the demo: an HTTP server in threads that may be down or hang.

It checks signatures by the text of the standard, with nothing of the product.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from connectors.webhooks import new_secret

HANG_S = 60.0


class Receiver:
    """Use as a context manager; `got` are (webhook-id, body) of what it took, in order.

    With `hangs` it never answers; for `down_s` from the first call on it answers 503.
    """

    def __init__(self) -> None:
        self.secrets = [new_secret()]
        self.hangs, self.down_s = False, 0.0
        self.got: list[tuple[str, bytes]] = []
        self.unsigned = self.refused = self.answered = 0
        self._first_s: float | None = None
        self._ended, self._lock = threading.Event(), threading.Lock()

    def __enter__(self) -> Self:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.take({k.lower(): v for k, v in self.headers.items()}, body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is written."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                """A caller that gave up is none of ours."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def secret(self) -> str:
        """The one it begins with."""
        return self.secrets[0]

    def first(self) -> dict[str, bytes]:
        """webhook-id → body, in the order they came first."""
        with self._lock:
            found: dict[str, bytes] = {}
            for id_, body in self.got:
                found.setdefault(id_, body)
            return found

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Status of the answer to a call."""
        if self.hangs:
            with self._lock:
                self.got.append((headers["webhook-id"], body))
            self._ended.wait(HANG_S)
            return 503
        with self._lock:
            self.answered += 1
            self._first_s = self._first_s or time.monotonic()
            if time.monotonic() - self._first_s < self.down_s:
                self.refused += 1
                return 503
            self.unsigned += not self._signed(headers, body)
            self.got.append((headers["webhook-id"], body))
        return 204

    def _signed(self, headers: dict[str, str], body: bytes) -> bool:
        stamp = headers["webhook-timestamp"]
        content = f"{headers['webhook-id']}.{stamp}.".encode() + body
        given = set(headers["webhook-signature"].split())
        keys = [base64.b64decode(one.removeprefix("whsec_")) for one in self.secrets]
        fits = [
            "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
            for key in keys
        ]
        return bool(given & set(fits)) and abs(time.time() - int(stamp)) < 300
