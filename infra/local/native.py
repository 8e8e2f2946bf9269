"""Builds the column reader (`streams/native`) into the Python environment, where cargo is.

Run by `./dev` when the crate has changed since it was last tried; standard library only, like
`environment`. A failure never breaks the environment: the lane reads in Python then, and one line
says why. What is compiled stays in a folder beside the environment, so a repeat is quick.

Usage: `native.py CHECKOUT VENV STAMP`; the stamp is stored whether it was built or not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

TIMEOUT_S = 1_800
MODULE = "headrace_native.abi3.so"
_LIBRARIES = ("libheadrace_native.so", "libheadrace_native.dylib")


class NotBuilt(RuntimeError):
    """The column reader could not be built; says why in one line."""


def build(checkout: Path, venv: Path) -> Path:
    """Compile the crate and put it where the environment's Python finds it; returns that file.

    Raises `NotBuilt`.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        raise NotBuilt("cargo is not there; https://rustup.rs has it")
    target = venv.with_name("native")
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    report = target / "build.log"
    command = (cargo, "build", "--release", "--locked", "--target-dir", str(target))
    with report.open("w") as log:
        try:
            subprocess.run(
                command,
                cwd=checkout / "streams" / "native",
                env=os.environ | {"PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_NO_PYTHON": "1"},
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
            )
        except subprocess.CalledProcessError as error:
            raise NotBuilt(f"cargo ended with {error.returncode}, see {report}") from error
        except subprocess.TimeoutExpired as error:
            raise NotBuilt(f"cargo took over {TIMEOUT_S // 60} minutes, see {report}") from error
        except OSError as error:
            raise NotBuilt(str(error)) from error
    return _install(target / "release", venv)


def _install(built: Path, venv: Path) -> Path:
    """Put the library in place in one step: a running process keeps the one that it has."""
    found = next((built / name for name in _LIBRARIES if (built / name).is_file()), None)
    if found is None:
        raise NotBuilt(f"no library in {built}")
    place = Path(sysconfig.get_path("platlib", vars={"base": str(venv), "platbase": str(venv)}))
    draft = place / f"{MODULE}.new"
    shutil.copyfile(found, draft)
    return draft.replace(place / MODULE)


def say(line: str) -> None:
    print(f"dev: {line}", file=sys.stderr, flush=True)


def main() -> int:
    checkout, venv, stamp = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    stamp_file = venv / "native.stamp"
    with venv.with_name("native.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp_file.is_file() and stamp_file.read_text().strip() == stamp.strip():
            return 0
        say("building the column reader (a minute or two, once; HEADRACE_READER=python skips it)")
        try:
            build(checkout, venv)
        except NotBuilt as error:
            say(f"the column reader is not built: {error}. The lane reads in Python")
        stamp_file.write_text(stamp + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
