"""Runs a contender in a process of its own and measures it from outside too."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence

import msgspec
import psutil

from infra.local.home import CHECKOUT
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish

TIMEOUT_S = 300.0


class Run(msgspec.Struct, frozen=True):
    """One run: processor seconds of the whole process (start-up and imports too) and of the
    broker, and how busy the machine was: its load average before, and the processor seconds that
    neither contender nor broker used meanwhile.
    """

    finish: Finish
    process_cpu_s: float
    broker_cpu_s: float | None
    others_cpu_s: float
    load_1min: float

    @property
    def events(self) -> int:
        return sum(self.finish.consumed.values())

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.finish.seconds


class Failed(RuntimeError):
    """A contender ended badly; the message is the end of what it wrote."""


def run(module: str, *args: object, broker: psutil.Process | None = None) -> Run:
    """Run `tests.bench.contenders.<module>` to its end. Raises `Failed`."""
    load, machine, before = os.getloadavg()[0], _busy_s(), _cpu_s(broker)
    command = [sys.executable, "-m", f"tests.bench.contenders.{module}", *map(str, args)]
    used = _children_s()
    finish = _finished(command)
    own = _children_s() - used
    brokers = None if before is None else (_cpu_s(broker) or 0.0) - before
    others = max(0.0, _busy_s() - machine - own - (brokers or 0.0))
    return Run(finish, own, brokers, others, load)


def _finished(command: Sequence[str]) -> Finish:
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as expired:
            process.kill()
            raise Failed(f"{command[2]}: not done after {TIMEOUT_S:.0f} s") from expired
    if process.returncode or not out:
        raise Failed(f"{command[2]} ended with {process.returncode}: {errors[-2_000:]}")
    return msgspec.json.decode(out.splitlines()[-1], type=Finish)


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _cpu_s(process: psutil.Process | None) -> float | None:
    if process is None:
        return None
    times = process.cpu_times()
    return float(times.user + times.system)


def broker_process(settings: Settings) -> psutil.Process | None:
    """The broker's process if it is on this machine and may be looked at."""
    port = int(settings.kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)[1])
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    for one in connections:
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid:
            return psutil.Process(one.pid)
    return None
