"""Python engines in environments of their own, made from their locks when they are first asked for.

An engine is a folder here with `requirements.lock` and a `__main__`, which may import of ours what
needs the standard library, msgspec and fastavro only. A lock is made by
`uv pip compile --universal --python-version 3.11 --generate-hashes requirements.in`.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.error import StackError
from infra.local.home import Home
from tests.bench import report


@dataclass(frozen=True)
class Environment:
    """An engine by the name of its folder, and the minor versions of Python 3 it exists for."""

    name: str
    minors: Sequence[int]

    def command(self, *args: object) -> list[str]:
        """The command that runs the engine's program. Raises `StackError` if it cannot be had."""
        return [str(self.python()), "-m", f"tests.bench.peers.{self.name}", *map(str, args)]

    def missing(self) -> str:
        """Why it cannot be measured on this machine; empty if it can."""
        if self._base():
            return ""
        return f"needs Python 3.{self.minors[0]} to 3.{self.minors[-1]} (this one, or on PATH)"

    def python(self) -> Path:
        """Its interpreter; makes the environment unless it is there."""
        base, lock = self._base(), self.lock
        if base is None:
            raise StackError(f"{self.name} {self.missing()}")
        stamp = hashlib.sha256(base.encode() + lock.read_bytes()).hexdigest()[:12]
        folder = Home.default().root / "peers" / f"{self.name}-{stamp}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not (folder / "made").exists():
                self._make(base, folder)
        return folder / "bin" / "python"

    @property
    def lock(self) -> Path:
        return Path(__file__).parent / self.name / "requirements.lock"

    def version(self, package: str) -> str:
        """The locked version of a package, for result files."""
        for line in self.lock.read_text().splitlines():
            if line.startswith(f"{package}=="):
                return line.split("==")[1].split()[0]
        raise LookupError(f"{package} is not in {self.lock}")

    def _base(self) -> str | None:
        """The interpreter it is made with: this one if it fits, else one on PATH."""
        if sys.version_info.minor in self.minors:
            return sys.executable
        found = (shutil.which(f"python3.{minor}") for minor in reversed(self.minors))
        return next((path for path in found if path), None)

    def _make(self, base: str, folder: Path) -> None:
        from uv import find_uv_bin

        report.console.print(f"making the environment of {self.name}")
        uv, python = find_uv_bin(), str(folder / "bin" / "python")
        install = ("pip", "install", "--python", python, "--require-hashes", "-r", str(self.lock))
        for command in ((uv, "venv", "--clear", "--python", base, str(folder)), (uv, *install)):
            done = subprocess.run(
                [*command, "--quiet"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise StackError(f"{self.name} could not be installed: {done.stderr.strip()}")
        (folder / "made").touch()


QUIX = Environment("quix", range(11, 14))
BYTEWAX = Environment("bytewax", range(11, 13))
