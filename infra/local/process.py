"""Starting, recognising and stopping the processes that are ours, and only those.

A record names a process by pid, start time and process group (the keeper's). A pid that was
reused by somebody else differs in start time and group, so it is never taken for ours.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from infra.error import StackError
from infra.local import keeper
from infra.local.home import read_json

LOG_BYTES_MAX = 10_000_000
START_TOLERANCE_S = 2.0
"""Start times are derived from the wall clock, which may be corrected between two readings."""
GRACE_S = 40.0
"""How long a worker or an API may take to end by itself."""
KILLED_WITHIN_S = 10.0
"""How long the kernel may take to end a killed process, and a keeper to follow its server."""


@dataclass(frozen=True)
class Launch:
    """A command to run as a server."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables beside the launcher's own environment."""


class NotStarted(StackError):
    """The server's process could not be started; its log says why."""


@contextmanager
def interrupt_deferred() -> Iterator[None]:
    """Hold a Ctrl-C back until the block ends, so that the block happens whole or not at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


def find(record_file: Path) -> psutil.Process | None:
    """The running process that a record names, or `None` if there is none any more."""
    record = read_json(record_file)
    if "pid" not in record or "code" in record:
        return None
    try:
        process = psutil.Process(record["pid"])
        same_start = abs(process.create_time() - record["started"]) < START_TOLERANCE_S
        if not same_start or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process if os.getpgid(process.pid) == record["keeper"] else None
    except (psutil.NoSuchProcess, ProcessLookupError):
        return None


def start(launch: Launch, record_file: Path, log_file: Path) -> psutil.Process:
    """Start a server under a keeper and return it once it is recorded.

    Raises `NotStarted`. When another keeper has the part already, returns that one's server.
    """
    kept = subprocess.run(
        [
            *(sys.executable, "-I", keeper.__file__),
            *(str(record_file), str(log_file), str(LOG_BYTES_MAX)),
            *launch.argv,
        ],
        cwd=launch.cwd,
        env={**os.environ, **launch.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    process = find(record_file)
    if process is None and kept.returncode == keeper.ALREADY_KEPT:
        raise NotStarted("is just ending; try again")
    if process is None:
        raise NotStarted(f"ended at once ({launch.argv[0]})")
    return process


def stop(record_file: Path, grace_s: float) -> bool:
    """Stop the recorded server: SIGTERM, `grace_s` seconds, then SIGKILL to its whole group.

    Returns whether there was one. The record goes away only when nothing is left.
    """
    process = find(record_file)
    if process is not None:
        group = os.getpgid(process.pid)
        with suppress(psutil.NoSuchProcess):
            process.terminate()
        if not _ended(process, grace_s):
            os.killpg(group, signal.SIGKILL)
            _ended(process, KILLED_WITHIN_S)
        with suppress(psutil.NoSuchProcess):
            _ended(psutil.Process(group), KILLED_WITHIN_S)
    record_file.unlink(missing_ok=True)
    return process is not None


def end(record_files: Sequence[Path]) -> list[str]:
    """Stop what these records name; returns the names of those that ran."""
    return [file.stem for file in record_files if stop(file, GRACE_S)]


def _ended(process: psutil.Process, within_s: float) -> bool:
    try:
        process.wait(within_s)
    except psutil.TimeoutExpired:
        return False
    return True


def tail(log_file: Path, lines: int) -> list[str]:
    """The last lines of a log."""
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 200 * 1024))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []
