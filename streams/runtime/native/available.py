"""Whether the column reader is there, and whether it is to be used.

`HEADRACE_READER` (`Settings.reader`): `auto` takes it where it is built, `native` insists on it,
`python` does without.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Literal

Choice = Literal["auto", "native", "python"]


class ReaderMissing(RuntimeError):
    """The column reader was insisted on and cannot be used here; says why and what to do."""


@functools.cache
def _loaded() -> ModuleType | str:
    """The library, bound to confluent-kafka's client; or why it cannot be used."""
    try:
        library = importlib.import_module("headrace_native")
    except ImportError as error:
        return f"not built ({error})"
    if not hasattr(library, "Sender"):
        return "of an older version than this program"
    try:
        library.attach(importlib.import_module("confluent_kafka.cimpl").__file__)
    except RuntimeError as error:
        return f"confluent-kafka's client library does not serve ({error})"
    return library


def library() -> ModuleType:
    """The Rust library. Raises `ReaderMissing`."""
    found = _loaded()
    if isinstance(found, str):
        raise ReaderMissing(f"the column reader is {found}; ./dev native builds it")
    return found


def available() -> bool:
    """Whether the column reader can be used in this process."""
    return not isinstance(_loaded(), str)


def why_not() -> str:
    """Why it cannot be used; empty where it can."""
    found = _loaded()
    return found if isinstance(found, str) else ""


def wanted(choice: Choice) -> bool:
    """Whether to use it. Raises `ReaderMissing` where it is insisted on and not there."""
    if choice == "native":
        library()
    return choice != "python" and available()
