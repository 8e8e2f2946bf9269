"""One TLS context for all HTTP clients of a process."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def context() -> ssl.SSLContext:
    """What `httpx.Client` would make for itself, made once: reading the certificates takes 20 ms,
    and a worker has dozens of clients of the registry alone.
    """
    return httpx.create_ssl_context()
