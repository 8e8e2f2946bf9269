"""Asking a server whether it works, with no client library where a few bytes do."""

from __future__ import annotations

import socket
from http import HTTPStatus
from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

ASK_WITHIN_S = 3.0


def endpoint(url: str) -> tuple[str, int]:
    """Host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or {"https": 443}.get(parts.scheme, 80)


def http_ok(url: str) -> bool:
    """Whether a GET is answered with 200. Proxies of the environment are not used."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=ASK_WITHIN_S) as answer:
            return int(answer.status) == HTTPStatus.OK
    except (OSError, HTTPException):
        return False


def ask(address: tuple[str, int], question: bytes, answer_bytes: int) -> bytes:
    """Send some bytes over TCP and return the first bytes of the answer; empty if none came."""
    try:
        with socket.create_connection(address, ASK_WITHIN_S) as connection:
            connection.settimeout(ASK_WITHIN_S)
            connection.sendall(question)
            return connection.recv(answer_bytes)
    except OSError:
        return b""


def listens(address: tuple[str, int]) -> bool:
    """Whether a TCP connection is accepted."""
    try:
        socket.create_connection(address, ASK_WITHIN_S).close()
    except OSError:
        return False
    return True
