import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.local import keeper, process
from infra.local.home import read_json, write_json
from infra.local.process import Launch


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "run" / "part.json"
    yield file
    process.stop(file, 5.0)


@pytest.fixture
def bystander() -> Iterator[psutil.Process]:
    """A process of somebody else, in a session of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as running:
        yield psutil.Process(running.pid)
        running.kill()


def python(code: str, cwd: Path) -> Launch:
    return Launch((sys.executable, "-c", code), cwd=cwd)


def until_ended(record: Path) -> None:
    while process.find(record) or "code" not in read_json(record):
        time.sleep(0.01)


def test_a_started_process_is_found_and_stopped(record: Path, tmp_path: Path) -> None:
    running = process.start(Launch(("sleep", "600"), tmp_path), record, tmp_path / "log")
    assert process.find(record) == running
    assert os.getsid(running.pid) != os.getsid(0)
    assert process.stop(record, 5.0)
    assert not running.is_running()
    assert not record.exists()


@pytest.mark.parametrize("wrong", ["start", "group"])
def test_a_reused_pid_is_never_killed(record: Path, bystander: psutil.Process, wrong: str) -> None:
    started = bystander.create_time() - (3600 if wrong == "start" else 0)
    group = os.getpgid(bystander.pid) if wrong == "start" else os.getpid()
    write_json(record, {"pid": bystander.pid, "started": started, "keeper": group})
    assert process.find(record) is None
    assert not process.stop(record, 1.0)
    assert bystander.is_running()


def test_what_ignores_sigterm_is_killed_with_its_children(record: Path, tmp_path: Path) -> None:
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork();"
        f"open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    )
    process.start(python(code, tmp_path), record, tmp_path / "log")
    pids = tmp_path / "pids"
    while not pids.exists() or len(pids.read_text().split()) < 2:
        time.sleep(0.01)
    assert process.stop(record, 0.2)
    for pid in map(int, pids.read_text().split()):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


def test_output_is_kept_but_bounded(tmp_path: Path) -> None:
    file = tmp_path / "log"
    log = keeper.Log(file, 1000)
    for n in range(1000):
        log.write(f"line {n:05}\n".encode())
    log.close()
    older = tmp_path / "log.1"
    assert file.stat().st_size <= 1000 + 11
    assert older.stat().st_size <= 1000 + 11
    assert process.tail(file, 1) == ["line 00999"]


def test_output_and_exit_code_are_recorded(record: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import sys, time; print('hello'); sys.stdout.flush(); time.sleep(0.3); sys.exit(7)"
    process.start(python(code, tmp_path), record, log)
    until_ended(record)
    assert read_json(record)["code"] == 7
    assert "hello" in process.tail(log, 5)
    assert process.tail(log, 1) == ["[headrace] ended with code 7"]


def test_a_missing_program_is_an_error(record: Path, tmp_path: Path) -> None:
    with pytest.raises(process.NotStarted, match="/no/such/program"):
        process.start(Launch(("/no/such/program",), tmp_path), record, tmp_path / "log")
    assert "No such file" in process.tail(tmp_path / "log", 1)[0]


def test_a_second_start_finds_the_first(record: Path, tmp_path: Path) -> None:
    first = process.start(Launch(("sleep", "600"), tmp_path), record, tmp_path / "log")
    second = process.start(Launch(("sleep", "600"), tmp_path), record, tmp_path / "log")
    assert first == second


def test_a_server_outlives_its_keeper_and_is_still_ours(record: Path, tmp_path: Path) -> None:
    running = process.start(Launch(("sleep", "600"), tmp_path), record, tmp_path / "log")
    os.kill(read_json(record)["keeper"], signal.SIGKILL)
    assert process.find(record) == running
    assert process.stop(record, 5.0)
    assert not running.is_running()


def test_ctrl_c_is_held_back_until_the_block_ends() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), process.interrupt_deferred():
        signal.raise_signal(signal.SIGINT)
        steps.append("finished")
    assert steps == ["finished"]
