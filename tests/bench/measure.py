"""Runs a contender in a process of its own and measures it from outside too."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import msgspec
import psutil

from infra.local.home import CHECKOUT
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish

TIMEOUT_S = 300.0
SHOWN_MAX = 200


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

    @property
    def steady_rate(self) -> float | None:
        """Events a second after the first `WARM_UP` records; None for a run too short for it."""
        finish = self.finish
        return finish.steady_events / finish.steady_s if finish.steady_events else None


class Failed(RuntimeError):
    """A contender ended badly; the message is the end of what it wrote."""


def python(module: str, *args: object) -> list[str]:
    """The command of a contender of ours, `tests.bench.contenders.<module>`."""
    return [sys.executable, "-m", f"tests.bench.contenders.{module}", *map(str, args)]


def run(
    command: Sequence[str],
    *,
    broker: psutil.Process | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Run:
    """Run a program to its end; the last line it prints is a `Finish`. Raises `Failed`."""
    load, machine, before = os.getloadavg()[0], busy_s(), _cpu_s(broker)
    used = _children_s()
    finish = _finished(command, env or {}, timeout_s)
    own = _children_s() - used
    brokers = None if before is None else (_cpu_s(broker) or 0.0) - before
    others = max(0.0, busy_s() - machine - own - (brokers or 0.0))
    return Run(finish, own, brokers, others, load)


def _finished(command: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Finish:
    with subprocess.Popen(
        command,
        cwd=CHECKOUT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as expired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failed(f"{_shown(command)}: not done after {timeout_s:.0f} s") from expired
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode or not out:
        raise Failed(f"{_shown(command)} ended with {process.returncode}: {errors[-2_000:]}")
    return msgspec.json.decode(out.splitlines()[-1], type=Finish)


def _shown(command: Sequence[str]) -> str:
    line = " ".join(command)
    return line if len(line) <= SHOWN_MAX else f"{line[:SHOWN_MAX]}…"


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def busy_s() -> float:
    """Processor seconds of the whole machine so far."""
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
