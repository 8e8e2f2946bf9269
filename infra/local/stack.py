"""`up`, `down`, `status`: the order of things, over parts that know only themselves.

Per part: an address fixed by the environment at which something answers is used as it is; else
Docker Compose starts the part if a daemon answers; else it is started natively. A part that
fails or is interrupted while starting is stopped again; a part that was ready stays.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import psutil
from rich.console import Console
from rich.markup import escape

from infra.error import StackError
from infra.local import compose, ports, process
from infra.local.home import Home, read_json, write_json
from infra.local.part import Part, Site, Way
from infra.local.parts import DEFAULT, PARTS
from infra.local.process import Launch
from streams.runtime.settings import Settings

LOG_LINES = 20
ATTEMPTS = 3
"""Starts of a part whose port was taken between the choice and its start."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class State:
    """One line of `status`."""

    part: str
    state: Literal["ready", "not answering", "given", "stopped", "ended"]
    address: str = ""
    pid: int | None = None
    memory_bytes: int | None = None


@dataclass
class Stack:
    """The parts of one home."""

    home: Home = field(default_factory=Home.default)
    console: Console = field(default_factory=lambda: Console(stderr=True))
    way: Way | None = None
    """Force a way; by default Docker if a daemon answers, else native."""

    def up(self, parts: Sequence[str] = DEFAULT) -> Settings:
        """Start what is not ready yet, with what it needs; return the addresses of all.

        Raises `StackError` with the last log lines, or `ports.PortTaken` when an address that
        the environment fixes belongs to another server.
        """
        with self._locked():
            starting: dict[str, Site] = {}
            try:
                for part in in_order(parts):
                    for need in part.needs:
                        self._finish(PARTS[need], starting)
                    self._begin(part, starting)
                for name in list(starting):
                    self._finish(PARTS[name], starting)
            except BaseException:
                for name, site in starting.items():
                    self._settle(PARTS[name], site)
                raise
        return Settings.read()

    def down(self, parts: Sequence[str] | None = None) -> list[str]:
        """Stop our processes of these parts; by default of all, and before them whatever else was
        started here, as by a demo that was killed. Returns the names of what was stopped.
        """
        wanted = in_order(PARTS if parts is None else parts, with_needs=False)
        with self._locked():
            beside = process.end(self.home.beside(PARTS)) if parts is None else []
            return [*beside, *(part.name for part in reversed(wanted) if self._stop(part))]

    def clean(self) -> None:
        """Stop everything and remove the home folder with all data, logs and downloads."""
        docker = any(self._way_of(part) == "docker" for part in PARTS.values())
        self.down()
        if docker:
            compose.remove(self.home)
        shutil.rmtree(self.home.root)

    def status(self) -> list[State]:
        """The state of every part, asked now."""
        settings = Settings.read()
        return [self._state(part, settings) for part in PARTS.values()]

    def logs(self, part: str, lines: int) -> list[str]:
        """The last lines that a part wrote."""
        if self._way_of(PARTS[part]) == "docker":
            return compose.logs(self.home, part, lines)
        return process.tail(self.home.log(part), lines)

    def _begin(self, part: Part, starting: dict[str, Site]) -> None:
        """Start a part, unless it runs already (then wait for it) or is given."""
        fixed = fixed_address(part)
        if self._runs(part):
            remembered = self.home.ports()[part.name]
            if fixed is None or fixed[1] == remembered["main"]:
                starting[part.name] = self._site(part, remembered)
                if self._answers(part, starting[part.name]):
                    self._publish(part, starting)
                    return
                del starting[part.name]
            else:
                if not part.ready(Settings.read()):
                    may_take(part, fixed)
                self._stop(part)
        if fixed is not None and part.ready(Settings.read()):
            self._say(part.name, f"given: answers at {fixed[0]}:{fixed[1]}")
            return
        self._start(part, starting)

    def _start(self, part: Part, starting: dict[str, Site]) -> None:
        site = self._site(part, self._ports(part))
        self.home.set_ports(part.name, site.ports)
        launch = self._prepared(part, site)
        self._say(part.name, f"starting on port {site.ports['main']} ({site.way})")
        starting[part.name] = site
        record = self.home.run(part.name)
        if launch is None:
            write_json(record, {"way": "docker"})
            compose.start(self.home, part.name)
            return
        try:
            with process.interrupt_deferred():
                process.start(launch, record, self.home.log(part.name))
        except process.NotStarted as error:
            raise StackError(self._told(part, str(error))) from error

    def _prepared(self, part: Part, site: Site) -> Launch | None:
        """What to launch natively; downloads show how far they are."""
        if site.way != "native":
            return None
        with self.console.status(f"preparing {part.name}") as shown:
            progress = lambda line: shown.update(f"{part.name}: {escape(line)}")  # noqa: E731
            return part.prepare(replace(site, progress=progress))

    def _finish(self, part: Part, starting: dict[str, Site]) -> None:
        """Wait until a part that is starting answers, then publish its address."""
        if part.name not in starting:
            return
        began = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            site = starting[part.name]
            if self._answers(part, site):
                break
            taken = [port for port in site.ports.values() if not ports.is_free(port)]
            if not taken or fixed_address(part) or attempt == ATTEMPTS:
                raise StackError(self._told(part, "ended while starting"))
            self._say(part.name, f"port {taken[0]} was taken meanwhile")
            self._start(part, starting)
        self._publish(part, starting)
        self._say(part.name, f"ready (waited {time.monotonic() - began:.1f} s)")

    def _publish(self, part: Part, starting: dict[str, Site]) -> None:
        values = part.values(starting.pop(part.name))
        if self.home.launched().get(part.name) != values:
            self.home.set_launched(part.name, values)

    def _settle(self, part: Part, site: Site) -> None:
        """After a failure or Ctrl-C: what answers stays and is published, the rest is stopped."""
        if self._runs(part) and part.ready(self._reached(part, site)):
            self._publish(part, {part.name: site})
            return
        self._say(part.name, "stopped again, it was not ready")
        self._stop(part)

    def _answers(self, part: Part, site: Site) -> bool:
        """Wait for the answer of our own process; `False` when that has ended."""
        settings = self._reached(part, site)
        ends = time.monotonic() + part.ready_within_s
        with self.console.status(f"waiting for {part.name}"):
            while time.monotonic() < ends:
                ready = part.ready(settings)
                if not self._runs(part):
                    return False
                if ready:
                    return True
                time.sleep(0.1)
        raise StackError(self._told(part, f"did not answer in {part.ready_within_s:.0f} s"))

    def _stop(self, part: Part) -> bool:
        if self._way_of(part) == "docker":
            compose.stop(self.home, part.name)
            self.home.run(part.name).unlink()
            stopped = True
        else:
            stopped = process.stop(self.home.run(part.name), part.stop_within_s)
        self.home.set_launched(part.name, None)
        return stopped

    def _ports(self, part: Part) -> dict[str, int]:
        """Ports for a start: the fixed one must be ours to take, the others are chosen."""
        used = self.home.ports()
        remembered = used.pop(part.name, {})
        reserved = {port for roles in used.values() for port in roles.values()}
        fixed = fixed_address(part)
        if fixed is None:
            return ports.choose(part.ports, remembered, reserved, self.home.root)
        may_take(part, fixed)
        port = fixed[1]
        others = {role: default for role, default in part.ports.items() if role != "main"}
        chosen = ports.choose(others, remembered, reserved | {port}, self.home.root)
        return {"main": port, **chosen}

    def _site(self, part: Part, chosen: dict[str, int]) -> Site:
        return Site(
            home=self.home,
            ports=chosen,
            settings=Settings.read(),
            say=lambda line: self._say(part.name, line),
            progress=lambda _: None,
            way=self._way(part),
        )

    def _reached(self, part: Part, site: Site) -> Settings:
        section: dict[str, Any] = {part.name: part.values(site)}
        return Settings(**section)

    def _runs(self, part: Part) -> bool:
        record = self.home.run(part.name)
        return self._way_of(part) == "docker" or process.find(record) is not None

    def _way_of(self, part: Part) -> str:
        """The way by which a part was started, `native` if it was not."""
        return str(read_json(self.home.run(part.name)).get("way", "native"))

    def _way(self, part: Part) -> Way:
        if self._runs(part):
            return "docker" if self._way_of(part) == "docker" else "native"
        if not part.docker:
            return "native"
        return self.way or ("docker" if compose.available() else "native")

    def _state(self, part: Part, settings: Settings) -> State:
        host, port = part.address(settings)
        address = f"{host}:{port}"
        if not self._runs(part):
            if fixed_address(part) is not None and part.ready(settings):
                return State(part.name, "given", address)
            code = read_json(self.home.run(part.name)).get("code")
            return State(part.name, "stopped" if code is None else "ended")
        state: Literal["ready", "not answering"] = (
            "ready" if part.ready(settings) else "not answering"
        )
        found = process.find(self.home.run(part.name))
        if found is None:
            return State(part.name, state, address)
        return State(part.name, state, address, found.pid, memory_bytes(found))

    def _told(self, part: Part, what: str) -> str:
        """An error message with the last lines of the log."""
        lines = self.logs(part.name, LOG_LINES)
        shown = "\n".join(f"  {line}" for line in lines)
        return f"{part.name} {what}. Its last lines (headrace logs {part.name}):\n{shown}"

    def _say(self, part: str, line: str) -> None:
        self.console.print(f"[bold]{part:<11}[/] {escape(line)}", highlight=False, soft_wrap=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.home.locked(
            lambda pid: self._say("headrace", f"waiting for another headrace (pid {pid})")
        ):
            yield


def in_order(names: Sequence[str] | dict[str, Part], with_needs: bool = True) -> list[Part]:
    """The named parts, and what they need, in starting order. Raises `StackError` by name."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise StackError(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    wanted = set(names)
    if with_needs:
        wanted |= {need for name in names for need in PARTS[name].needs}
    return [part for name, part in PARTS.items() if name in wanted]


def fixed_address(part: Part) -> tuple[str, int] | None:
    """The address that the environment fixes for a part, if it does."""
    names = {name.upper() for name in os.environ}
    if not names & set(part.variables):
        return None
    return part.address(Settings.read())


def may_take(part: Part, fixed: tuple[str, int]) -> None:
    """Raise unless we may start a server at an address that the environment fixes."""
    host, port = fixed
    variable = " and ".join(part.variables)
    if host not in LOOPBACK:
        raise StackError(f"{part.name}: nothing answers at {host}:{port} ({variable})")
    ports.require(port, f"fixed by {variable}")


def memory_bytes(found: psutil.Process) -> int | None:
    """Resident memory of a process and its children."""
    try:
        return sum(p.memory_info().rss for p in (found, *found.children(recursive=True)))
    except psutil.Error:
        return None
