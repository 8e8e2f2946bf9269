"""Chat: conversations over HTTP, their sockets, and a page for a browser."""

from __future__ import annotations

from api.routes.chat import conversations, page, socket

ROUTERS = (conversations.writes, conversations.router, socket.router, page.router)
