"""Keeps one server: its own session, a bounded log, a record of who it is and how it ended.

Run as a script by `infra.local.process.start`. It puts itself in the background, in a session of
its own, so that neither the terminal's Ctrl-C nor the end of the launcher reaches the server,
and writes the process record itself: a launcher killed at any moment leaves no server that
nobody knows. It holds a lock for its whole life, so one part cannot be started twice.

Usage: `keeper.py RECORD LOG LOG_BYTES_MAX COMMAND…`. Returns 0 once the server is recorded.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

STARTED = 0
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

    def close(self) -> None:
        self.out.close()


def write_record(file: Path, record: dict[str, Any]) -> None:
    """Replace the record in one step."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(record))
    fresh.replace(file)


def keep(record_file: Path, log: Log, command: list[str], tell: Callable[[int], None]) -> None:
    """Start the command, record it, then copy its output until it ends; record how it ended."""
    log.write(f"[headrace] {' '.join(command)}\n".encode())
    try:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        log.write(f"[headrace] cannot start: {error}\n".encode())
        tell(NOT_STARTED)
        return
    record = {
        "pid": server.pid,
        "started": psutil.Process(server.pid).create_time(),
        "keeper": os.getpid(),
    }
    write_record(record_file, record)
    tell(STARTED)
    assert server.stdout is not None
    while data := os.read(server.stdout.fileno(), 1 << 16):
        log.write(data)
    code = server.wait()
    log.write(f"[headrace] ended with code {code}\n".encode())
    write_record(record_file, record | {"code": code})


def in_background(work: Callable[[Callable[[int], None]], None]) -> int:
    """Fork; the child works in a session of its own, the parent returns what the child tells.

    Signals that end programs are ignored by the child: a keeper ends when its server does.
    """
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        answer = os.read(told, 1)
        return answer[0] if answer else NOT_STARTED
    os.close(told)
    os.setsid()

    def on_signal(*_: object) -> None:
        """Do nothing. Unlike SIG_IGN, a handler is not inherited by the server."""

    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, on_signal)

    def answer_with(code: int) -> None:
        os.write(tell, bytes([code]))
        os.close(tell)

    work(answer_with)
    os._exit(0)


def main() -> int:
    record_file, log_file, bytes_max = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    record_file.parent.mkdir(parents=True, exist_ok=True)
    with record_file.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ALREADY_KEPT
        log = Log(log_file, bytes_max)
        return in_background(lambda tell: keep(record_file, log, sys.argv[4:], tell))


if __name__ == "__main__":
    sys.exit(main())
