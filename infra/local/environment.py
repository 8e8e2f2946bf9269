"""Makes the Python environment from `requirements.lock`: exact versions, every file hashed.

Run by `./dev` with any Python 3.11 or newer before anything is installed, hence the standard
library only. `venv`, then `uv` as the lock pins it, then everything else with `uv`.

Usage: `environment.py CHECKOUT VENV STAMP`; the stamp is stored when all has succeeded.
"""

from __future__ import annotations

import fcntl
import itertools
import subprocess
import sys
import venv
from pathlib import Path


def requirement(lock: str, package: str) -> str:
    """The lines of one package in a lock file: its pin and its hashes."""
    lines = iter(lock.splitlines())
    for line in lines:
        if line.startswith(f"{package}=="):
            hashes = itertools.takewhile(lambda following: following[:1].isspace(), lines)
            return "\n".join([line, *hashes]) + "\n"
    raise LookupError(f"{package} is not in the lock")


def make(checkout: Path, folder: Path) -> None:
    """Create the environment from nothing. Raises `CalledProcessError` if an install fails."""
    lock = checkout / "requirements.lock"
    say(f"making the Python {sys.version.split()[0]} environment in {folder}")
    venv.EnvBuilder(clear=True, with_pip=True, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    own = folder / "uv.lock"
    own.write_text(requirement(lock.read_text(), "uv"))
    pip = (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--require-hashes", "-r", str(own))
    say("installing the locked packages")
    install = (str(folder / "bin" / "uv"), "pip", "install", "--python", str(python))
    run(*install, "--require-hashes", "-r", str(lock))
    run(*install, "--quiet", "--no-deps", "--no-build-isolation", "-e", str(checkout))


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def say(line: str) -> None:
    print(f"dev: {line}", file=sys.stderr, flush=True)


def main() -> int:
    checkout, folder, stamp = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp_file = folder / "stamp"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp_file.is_file() and stamp_file.read_text().strip() == stamp.strip():
            return 0
        try:
            make(checkout, folder)
        except subprocess.CalledProcessError as error:
            say(f"failed: {' '.join(error.cmd[:6])} … ended with {error.returncode}")
            return 1
        stamp_file.write_text(stamp + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
