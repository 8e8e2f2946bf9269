"""Processes of a fault test: stores of its own, and workers to kill."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.local.parts.redis import binary

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(happens: Callable[[], Any], within_s: float, what: str) -> Any:
    """Wait until it is truthy; fails the test when it does not come in time."""
    deadline = time.monotonic() + within_s
    while not (found := happens()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.05)
    return found


class Server:
    """A store's process, ended with the rig."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self.port = port
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
        until(self._listens, READY_S, f"{command[0]} listens on {port}")

    def _listens(self) -> bool:
        assert self.process.poll() is None, f"ended: {self.process.args}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def valkey(folder: Path) -> Server:
    port = free_port()
    options = f"--port {port} --bind 127.0.0.1 --save  --appendonly no --dir {folder}".split(" ")
    return Server([binary(), *options], port, folder / "valkey.log")


def clickhouse(folder: Path) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "infra.clickhouse", "--data", str(folder / "clickhouse")]
    return Server([*command, "--port", str(port)], port, folder / "clickhouse.log")


@dataclass
class Worker:
    """One process of `tests.chaos.worker`, or one kept running by the product's supervisor."""

    command: list[str]
    env: dict[str, str]
    port: int
    log: Path

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start, or start again after an end."""
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.env, stdout=out, stderr=out
            )

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, within_s: float = 30) -> int:
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(within_s)

    def ready(self) -> bool:
        assert self.process.poll() is None, f"worker ended, see {self.log}:\n{self.tail()}"
        with suppress(OSError):
            address = f"http://127.0.0.1:{self.port}/readyz"
            with urllib.request.urlopen(address, timeout=2) as answer:
                return bool(answer.status == 200)
        return False

    def metric(self, name: str) -> float:
        """Sum over all label sets; 0 when the process does not answer."""
        total = 0.0
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer,
        ):
            for line in answer.read().decode().splitlines():
                if line.startswith(name):
                    total += float(line.rsplit(" ", 1)[1])
        return total

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def said(self, text: str) -> int:
        """How often its log has that text."""
        return self.log.read_text(errors="replace").count(text)


@contextmanager
def background(work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Run `work` beside the test until the block ends; its failure fails the test."""
    stop, failed = threading.Event(), []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(120)
    if failed:
        raise failed[0]
