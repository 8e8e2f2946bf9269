"""Highlighted text, by Pygments in a process of its own: a text that makes a lexer run away (its
patterns backtrack) is shown plain after `TIMEOUT_S`, and the server has lost nothing. The process
is given none of our environment.
"""

from __future__ import annotations

import asyncio
import html
import sys
from functools import cache
from typing import Final

from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
from pygments.lexers import get_all_lexers  # type: ignore[import-untyped]

PLAIN: Final = "text"
BYTES_MAX: Final = 262_144
"""A longer text is shown plain."""
TIMEOUT_S: Final = 5.0
_CLASS: Final = "paste"


@cache
def languages() -> frozenset[str]:
    """Short names of all languages that can be highlighted, and `text`."""
    return frozenset(alias for _, aliases, _, _ in get_all_lexers() for alias in aliases) | {PLAIN}


class Highlighter:
    """Turns texts into HTML, a few at a time."""

    def __init__(self, at_once: int = 2, timeout_s: float = TIMEOUT_S) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._timeout_s = timeout_s

    async def page(self, text: bytes, language: str) -> str:
        """A whole page with the text (UTF-8); nothing in it is taken as HTML."""
        inner = await self._inner(text, language)
        style = _style() if inner is not None else ""
        body = inner if inner is not None else f"<pre>{html.escape(text.decode())}</pre>"
        return (
            f'<!doctype html><html><head><meta charset="utf-8"><title>{html.escape(language)}'
            f"</title><style>{style}</style></head><body>{body}</body></html>"
        )

    async def _inner(self, text: bytes, language: str) -> str | None:
        """The highlighted text; None where it is to be shown plain."""
        if language == PLAIN or language not in languages() or len(text) > BYTES_MAX:
            return None
        try:
            async with asyncio.timeout(self._timeout_s), self._free:
                return await _run(text, language)
        except TimeoutError:
            return None


async def _run(text: bytes, language: str) -> str | None:
    options = f"encoding=utf-8,cssclass={_CLASS},stripnl=False"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "pygments", "-f", "html", "-l", language, "-O", options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        told, _ = await process.communicate(text)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return told.decode() if process.returncode == 0 else None


@cache
def _style() -> str:
    return str(HtmlFormatter(cssclass=_CLASS).get_style_defs(f".{_CLASS}"))
