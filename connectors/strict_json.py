"""JSON that means one thing (RFC 8259; I-JSON, RFC 7493), else `NotStrict`.

Refused, although common parsers take them: duplicate keys, NaN and Infinity, numbers that a
double cannot hold, integers beyond 64 bits, half surrogate pairs, a byte order mark, encodings
other than UTF-8, and nesting deeper than the parser's stack.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from connectors.scalars import LONG

INTEGER_DIGITS_MAX = len(str(LONG[0]))


class NotStrict(ValueError):
    """The text is JSON for some parsers, but does not mean one thing."""


def loads(raw: bytes) -> Any:
    """The value of a JSON text. Raises `NotStrict`."""
    try:
        text = raw.decode("utf-8")
        if "\\u" in text and "\\ud" in text.lower():
            return _checked(_DECODER.decode(text))
        return _DECODER.decode(text)
    except NotStrict:
        raise
    except UnicodeDecodeError as error:
        raise NotStrict(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise NotStrict(f"not JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise NotStrict("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotStrict("an object has the same key twice")
    return found


def _integer(text: str) -> int:
    if len(text) <= INTEGER_DIGITS_MAX:
        value = int(text)
        if LONG[0] <= value <= LONG[1]:
            return value
    raise NotStrict("an integer has more than 64 bits")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotStrict("a number is too large for a double")
    return value


def _constant(name: str) -> NoReturn:
    raise NotStrict(f"{name} is not JSON")


def _checked(value: Any) -> Any:
    """Raise `NotStrict` where text, keys included, holds half a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotStrict("text holds half a surrogate pair, which is not Unicode") from None
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
)
