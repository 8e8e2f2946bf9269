"""The folder of everything local: data, logs, process records, secrets, downloads.

```
.headrace/
  stack.json     addresses of what runs, in the shape of `streams.runtime.settings.Settings`
  ports.json     the ports that each part had last
  secrets.json   generated passwords and keys, readable by the owner only
  lib/           downloads: jars, a Java runtime, servers
  conf/<part>/   generated configuration
  data/<part>/   what a part stores
  log/<part>.log bounded output
  run/<part>.json the process record
```
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.runtime import settings

CHECKOUT = Path(__file__).resolve().parents[2]
"""The root of the project's files."""


@dataclass(frozen=True)
class Home:
    """Paths below one root. Two checkouts have two roots and share nothing."""

    root: Path

    @classmethod
    def default(cls) -> Home:
        """`HEADRACE_HOME`, or `.headrace` in the project."""
        return cls(settings.home().absolute())

    @property
    def stack_file(self) -> Path:
        return self.root / "stack.json"

    @property
    def lib(self) -> Path:
        return self.root / "lib"

    def conf(self, part: str) -> Path:
        return self.root / "conf" / part

    def data(self, part: str) -> Path:
        return self.root / "data" / part

    def log(self, part: str) -> Path:
        return self.root / "log" / f"{part}.log"

    def run(self, part: str) -> Path:
        return self.root / "run" / f"{part}.json"

    def beside(self, parts: Container[str]) -> list[Path]:
        """The records of processes that are none of these parts."""
        return sorted(f for f in (self.root / "run").glob("*.json") if f.stem not in parts)

    @property
    def tag(self) -> str:
        """Eight hex digits that tell this home from all others on the machine."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    def make(self) -> None:
        """Create the root, closed to other users since it holds passwords."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextmanager
    def locked(self, waiting: Callable[[str], None]) -> Iterator[None]:
        """Hold the lock that lets one `up`, `down` or `clean` work at a time.

        Calls `waiting` once with the holder's pid when somebody else has it. The lock goes
        with the process, so a killed holder leaves nothing behind.
        """
        self.make()
        with (self.root / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                waiting(file.read().strip() or "?")
                fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def secret(self, name: str) -> str:
        """A generated secret, the same on every call; kept in `secrets.json` (mode 600)."""
        known = self.secrets()
        if name not in known:
            known[name] = secrets.token_urlsafe(24)
            write_json(self.root / "secrets.json", known)
        return known[name]

    def secrets(self) -> dict[str, str]:
        """All secrets generated so far."""
        return {k: str(v) for k, v in read_json(self.root / "secrets.json").items()}

    def launched(self) -> dict[str, Any]:
        """What `stack.json` says."""
        return read_json(self.stack_file)

    def ports(self) -> dict[str, dict[str, int]]:
        """The ports by part and role that were used last; they are kept over `down` and `up`."""
        return read_json(self.root / "ports.json")

    def set_ports(self, part: str, chosen: Mapping[str, int]) -> None:
        """Remember the ports of a part."""
        write_json(self.root / "ports.json", self.ports() | {part: dict(chosen)})

    def set_launched(self, part: str, values: Mapping[str, Any] | None) -> None:
        """Write one part's addresses to `stack.json`, or take the part out (`None`)."""
        content = self.launched()
        content.pop(part, None)
        if values is not None:
            content[part] = dict(values)
        write_json(self.stack_file, content)


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is no file."""
    try:
        content: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return content


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Replace a file in one step, readable by the owner only: a reader never sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        json.dump(content, out, indent=2)
        out.write("\n")
    fresh.replace(file)
