"""Processes of a fault test: stores of its own, and workers to kill."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.local.home import Home
from infra.local.part import Site
from infra.local.parts import kafka
from infra.local.ports import free_port
from infra.local.process import Launch
from streams.runtime.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
READY_S = 120.0
START_S = 150.0
"""A Cassandra node takes its time."""


def until(happens: Callable[[], Any], within_s: float, what: str) -> Any:
    """Wait until it is truthy; fails the test when it does not come in time."""
    deadline = time.monotonic() + within_s
    while not (found := happens()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.05)
    return found


class Server:
    """A store's process, ended with the rig. `section(port)` is what the settings say of it to a
    client that comes by that port.
    """

    def __init__(
        self, launch: Launch, port: int, log: Path, section: Callable[[int], dict[str, Any]]
    ) -> None:
        self.port = port
        self.section = section
        self._launch = launch
        self._log = log
        self.start()

    def start(self) -> None:
        """Start, or start again after an end; returns when it takes connections."""
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                self._launch.argv,
                cwd=self._launch.cwd,
                env={**os.environ, **self._launch.env},
                stdout=out,
                stderr=out,
            )
        until(self._listens, START_S, f"{self._launch.argv[0]} listens, see {self._log}")

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait()

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


class Broker:
    """A Kafka node of the test's own, to kill and to start again on the same log."""

    @staticmethod
    def data_of(folder: Path) -> Path:
        """Where the broker of that folder keeps its log."""
        return Home(folder / "broker").data("kafka")

    def __init__(self, folder: Path) -> None:
        self._detour: tuple[int, int] | None = None
        home = Home(folder / "broker")
        home.make()
        (home.root / "lib").symlink_to(Home.default().lib)
        ports = {"main": free_port(), "controller": free_port()}
        self.bootstrap = f"127.0.0.1:{ports['main']}"
        self._site = Site(home, ports, Settings.read(), say=print, progress=lambda _: None)
        self._log = folder / "broker.log"

    @property
    def port(self) -> int:
        return self._site.ports["main"]

    def start(self) -> None:
        """Start, or start again after an end; returns when clients are served."""
        launch = kafka.PART.prepare(self._site)
        if self._detour is not None:
            self._listen_behind(*self._detour)
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(launch.argv, cwd=launch.cwd, stdout=out, stderr=out)
        settings = Settings(kafka={"bootstrap_servers": self.bootstrap})
        until(lambda: kafka.PART.ready(settings), READY_S, f"the broker answers, see {self._log}")

    def detour(self, port: int, told: int) -> None:
        """From the next start on, listen at another port as well, and tell clients that come that
        way to come by the port `told`: that of a proxy.
        """
        self._detour = port, told

    def _listen_behind(self, port: int, told: int) -> None:
        file = self._site.home.conf("kafka") / "server.properties"
        known = dict(line.split("=", 1) for line in file.read_text().splitlines())
        for name, more in {
            "listeners": f"DETOUR://127.0.0.1:{port}",
            "advertised.listeners": f"DETOUR://127.0.0.1:{told}",
            "listener.security.protocol.map": "DETOUR:PLAINTEXT",
        }.items():
            known[name] += f",{more}"
        file.write_text("".join(f"{name}={value}\n" for name, value in known.items()))

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """As a server of the rig: no longer needed."""
        if self.process.poll() is None:
            self.kill()


@contextmanager
def small_disk(at: Path, size_mb: int) -> Iterator[Path]:
    """A file system of that size at `at`; a file that fills it is the caller's to make."""
    at.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "none", str(at)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield at
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def fill(disk: Path) -> Path:
    """Take all that is left of a small disk; delete the file to heal it."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb") as out:
        while True:
            out.write(bytes(65_536))
            out.flush()
    return ballast


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
