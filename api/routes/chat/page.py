"""A page that chats: one HTML file, its style, and two modules of plain JavaScript.

It needs no token to be fetched and holds none: the reader's is typed in and kept in memory. Its
policy lets it load and call nothing but this server, and run nothing that is written in the page.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Response

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
FILES: Final = {
    "page.html": "text/html",
    "page.css": "text/css",
    "page.mjs": "text/javascript",
    "client.mjs": "text/javascript",
}
PREFIX: Final = "/v1/chat/page/"

router = APIRouter(include_in_schema=False)


def _serve(name: str, media_type: str) -> None:
    content = files(__package__).joinpath("browser", name).read_bytes()
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}

    async def serve() -> Response:
        return Response(content, headers=headers, media_type=media_type)

    router.add_api_route(PREFIX + name, serve, methods=["GET"])


for _name, _media_type in FILES.items():
    _serve(_name, _media_type)
