"""A copy of the project, as git would give it to somebody who begins a system in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from infra.local.home import CHECKOUT

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def copied(to: Path) -> Path:
    """The tracked and new files of the project, in a git repository of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (CHECKOUT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, to / name)
    subprocess.run(["git", "init", "-q", str(to)], check=True)
    subprocess.run(["git", "add", "--all"], cwd=to, check=True)
    return to


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python …` in a copy, seeing the copy's modules and no others of ours."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def headrace(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(root, "-c", "import infra.cli; infra.cli.main()", *arguments)
