"""Keeps one server: its own session, a bounded log, a record of who it is and how it ended.

Run as a script by `infra.local.process.start`, in a session of its own, so that neither the
terminal's Ctrl-C nor the end of the launcher reaches the server. It writes the process record
itself: a launcher killed at any moment leaves no server that nobody knows. It holds a lock for
its whole life, so that one part cannot be started twice.

Usage: `keeper.py RECORD LOG LOG_BYTES_MAX COMMAND…`
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

ALREADY_KEPT = 75
"""Exit code when another keeper has this part."""
NOT_STARTED = 76
"""Exit code when the command cannot be executed."""


class Log:
    """A file and at most one older one (`.1`), each at most `bytes_max` long (plus one write)."""

    def __init__(self, file: Path, bytes_max: int) -> None:
        self.file, self.bytes_max = file, bytes_max
        file.parent.mkdir(parents=True, exist_ok=True)
        self.out = file.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append. A full disk loses log lines but never stops the server."""
        try:
            if self.out.tell() > self.bytes_max:
                self.out.close()
                self.file.replace(self.file.with_name(self.file.name + ".1"))
                self.out = self.file.open("ab", buffering=0)
            self.out.write(data)
        except OSError:
            return


def write_record(file: Path, record: dict[str, Any]) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(record))
    fresh.replace(file)


def keep(record_file: Path, log: Log, command: list[str]) -> int:
    """Start the command, record it, copy its output until it ends; return its exit code."""
    log.write(f"[headrace] {' '.join(command)}\n".encode())
    children: list[subprocess.Popen[bytes]] = []
    asked_to_stop = False

    def on_terminate(*_: object) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True
        for child in children:
            child.terminate()

    signal.signal(signal.SIGTERM, on_terminate)
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        log.write(f"[headrace] cannot start: {error}\n".encode())
        return NOT_STARTED
    children.append(child)
    if asked_to_stop:
        child.terminate()
    record = {
        "pid": child.pid,
        "started": psutil.Process(child.pid).create_time(),
        "keeper": os.getpid(),
    }
    write_record(record_file, record)
    assert child.stdout is not None
    while data := os.read(child.stdout.fileno(), 1 << 16):
        log.write(data)
    code = child.wait()
    log.write(f"[headrace] ended with code {code}\n".encode())
    write_record(record_file, record | {"code": code})
    return code


def main() -> int:
    record_file, log_file, bytes_max = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    record_file.parent.mkdir(parents=True, exist_ok=True)
    with record_file.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ALREADY_KEPT
        return keep(record_file, Log(log_file, bytes_max), sys.argv[4:])


if __name__ == "__main__":
    sys.exit(main())
