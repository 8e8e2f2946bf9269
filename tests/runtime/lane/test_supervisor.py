"""The supervisor: crashes are answered, decisions are left to people, a stop drains."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from streams.runtime.supervisor import EXIT_DECISION, LAST_STATUS, Supervisor, crashed


def command(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def test_a_crash_is_answered_by_a_restart_that_knows_of_it(tmp_path: Path) -> None:
    script = f"""
import os, sys
log = open(sys.argv[1], "a")
log.write(sys.argv[2] + ":" + os.environ["{LAST_STATUS}"] + " ")
log.close()
os._exit(3 if sys.argv[2] == "0" else 0)
"""
    log = tmp_path / "log"
    assert Supervisor([command(script, log, "{restarts}")]).run() == 0
    assert log.read_text() == "0:0 1:3 "


def test_who_needs_a_decision_is_not_restarted(tmp_path: Path) -> None:
    script = f"open({str(tmp_path / 'log')!r}, 'a').write('x'); raise SystemExit({EXIT_DECISION})"
    assert Supervisor([command(script)]).run() == EXIT_DECISION
    assert (tmp_path / "log").read_text() == "x"


def test_a_stop_is_passed_on_and_waited_for(tmp_path: Path) -> None:
    script = f"""
import pathlib, signal, sys, time
folder = pathlib.Path({str(tmp_path)!r})
def stop(*_):
    (folder / "drained").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
(folder / "running").touch()
time.sleep(60)
"""
    supervisor = Supervisor([command(script)])
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    while not (tmp_path / "running").exists():
        assert thread.is_alive()
    supervisor.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert (tmp_path / "drained").exists()


@pytest.mark.parametrize(
    ("status", "itself"),
    [(0, False), (3, True), (-signal.SIGSEGV, True), (-signal.SIGKILL, False)],
)
def test_a_kill_from_outside_is_no_crash(status: int, itself: bool) -> None:
    assert crashed({LAST_STATUS: str(int(status))}) is itself
    assert not crashed({})
