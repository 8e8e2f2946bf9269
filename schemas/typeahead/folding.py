"""One form for what is typed in many: what a query is counted, found and blocked under.

Compatibility forms and letter case are taken away (Unicode's NFKC and case folding, so NFC and NFD,
full-width letters and ligatures are alike), and the four i's of Turkish become one: I, İ, i and ı
cannot be told apart without knowing the language, and somebody who types any of them means all.
Accents stay; one that is left out is one edit, which the search forgives.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

QUERY_CHARS_MAX: Final = 100
"""A longer query is a text that somebody pasted; it is no suggestion."""
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs"})
_DOTLESS, _DOT = "\u0131", "\u0307"
_ACCENTED = re.compile("i[\u0300-\u036f]+")


def folded(text: str) -> str:
    """The words of a query, folded, with single spaces between; empty where nothing can be seen."""
    return " ".join(_plain(text).split())


def folded_prefix(text: str) -> str:
    """What somebody has typed so far, folded. A space at its end stays: the word is finished."""
    words = folded(text)
    return f"{words} " if words and text[-1:].isspace() else words


def _plain(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text.lower()
    seen = (c for c in text if c.isspace() or unicodedata.category(c) not in _INVISIBLE)
    text = unicodedata.normalize("NFKC", "".join(seen)).casefold()
    text = unicodedata.normalize("NFKD", text).replace(_DOTLESS, "i")
    text = _ACCENTED.sub(lambda accented: accented[0].replace(_DOT, ""), text)
    return unicodedata.normalize("NFKC", text)
