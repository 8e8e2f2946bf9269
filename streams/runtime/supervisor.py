"""Keeps worker processes running: a crash is answered by a restart with backoff.

A worker that ends because a person must decide (`EXIT_DECISION`: stored position and log do not
belong together, unknown topic, bad settings) is not restarted: doing the same again would only
bury the message that says what to do.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

EXIT_DECISION = 78
"""`EX_CONFIG` of sysexits.h."""
BACKOFF_S_FIRST = 0.2
BACKOFF_S_MAX = 30.0
STEADY_S = 60.0
"""A worker that ran this long has recovered: the next crash starts the backoff anew."""
DRAIN_S = 30.0

LAST_STATUS = "WORKER_LAST_STATUS"
"""Environment variable that tells a worker how the process before it ended."""

log = structlog.get_logger()


def crashed(environ: Mapping[str, str]) -> bool:
    """Whether the worker before this one is known to have ended itself: by a fault or an exit,
    not by `SIGKILL` or `SIGTERM`, which come from outside.
    """
    status = int(environ.get(LAST_STATUS, "0"))
    return status not in (0, -signal.SIGKILL, -signal.SIGTERM)


@dataclass
class _Slot:
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    wait_s: float = BACKOFF_S_FIRST
    due: float = 0.0
    restarts: int = -1
    last_status: int = 0
    ended: bool = False


@dataclass
class Supervisor:
    """Runs one process per command until `stop`, or until all ended for good."""

    commands: Sequence[Sequence[str]]
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Run and watch. Returns 0 after an orderly stop, else the exit status of the worker
        that needs a decision.
        """
        slots = [_Slot(command) for command in self.commands]
        status = 0
        while not self.stopping.is_set() and not all(slot.ended for slot in slots):
            for slot in slots:
                status = self._watch(slot) or status
            self.stopping.wait(0.05)
        self._end(slots)
        return status

    def stop(self, *_: object) -> None:
        """Stop the workers in an orderly way; also a signal handler."""
        self.stopping.set()

    def _watch(self, slot: _Slot) -> int:
        now = time.monotonic()
        if slot.ended:
            return 0
        if slot.process is None:
            if now >= slot.due:
                self._start(slot, now)
            return 0
        status = slot.process.poll()
        if status is None:
            return 0
        slot.process, slot.last_status = None, status
        if status in (0, EXIT_DECISION):
            slot.ended = True
            return status
        if now - slot.started >= STEADY_S:
            slot.wait_s = BACKOFF_S_FIRST
        pause_s = slot.wait_s * random.uniform(0.5, 1.0)  # noqa: S311 -- spread, not secrecy
        slot.due, slot.wait_s = now + pause_s, min(slot.wait_s * 2, BACKOFF_S_MAX)
        log.error("worker died", status=status, restart_in_s=round(pause_s, 2))
        return 0

    def _start(self, slot: _Slot, now: float) -> None:
        slot.restarts += 1
        slot.started = now
        command = [part.replace("{restarts}", str(slot.restarts)) for part in slot.command]
        environ = {**os.environ, LAST_STATUS: str(slot.last_status)}
        slot.process = subprocess.Popen(command, env=environ)  # noqa: S603 -- our own command line

    def _end(self, slots: Sequence[_Slot]) -> None:
        alive = [slot.process for slot in slots if slot.process and slot.process.poll() is None]
        for process in alive:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + DRAIN_S
        for process in alive:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("worker did not drain, killing it", pid=process.pid)
                process.kill()
                process.wait()
