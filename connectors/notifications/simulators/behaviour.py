"""How a simulated provider behaves, and what it took."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Mode = Literal["ok", "down", "busy", "hang", "refuse"]
"""ok; 500; 429; no answer at all; 400."""


@dataclass
class Behaviour:
    """What the provider does now. Of `invalid` addresses it says that nobody is there. `hang` is
    nasty: the message is taken and the answer lost.
    """

    mode: Mode = "ok"
    invalid: set[str] = field(default_factory=set)
    retry_after_s: int = 1

    def change(self, told: Mapping[str, Any]) -> None:
        """Behave otherwise from now on."""
        self.mode = told.get("mode", self.mode)
        self.retry_after_s = int(told.get("retry_after_s", self.retry_after_s))
        self.invalid = set(told.get("invalid", self.invalid))


class Inbox:
    """The messages that were taken, in order; with a file, a line of JSON each, so that they
    outlive the process.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.messages: list[dict[str, Any]] = []
        self._file = None if file is None else file.open("a", buffering=1, encoding="utf-8")

    def put(self, **message: Any) -> None:
        """Take a message."""
        taken = {**message, "at": int(time.time() * 1_000)}
        self.messages.append(taken)
        if self._file is not None:
            self._file.write(json.dumps(taken) + "\n")

    def ids(self) -> list[str]:
        """The ids of the messages, repeats included."""
        return [message["id"] for message in self.messages]
