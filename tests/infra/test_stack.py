import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fake
import httpx
import psutil
import pytest

from infra.error import StackError
from infra.local import PARTS, Stack, ports, process
from infra.local import stack as stack_module
from infra.local.home import Home, read_json
from infra.local.ports import free_port
from infra.local.process import Launch
from infra.local.stack import in_order
from streams.runtime.settings import Settings

Mode = Callable[..., None]


def state(stack: Stack) -> str:
    return next(s.state for s in stack.status() if s.part == fake.NAME)


def pid(stack: Stack) -> int:
    found = process.find(stack.home.run(fake.NAME))
    assert found is not None
    return found.pid


def starts(stack: Stack) -> list[str]:
    return (stack.home.data(fake.NAME) / "starts").read_text().split()


def test_down_ends_what_a_killed_demo_left_and_parts_asked_for_leave_it(
    stack: Stack, mode: Mode, home: Home
) -> None:
    mode("good")
    stack.up([fake.NAME])
    beside = process.start(
        Launch((sys.executable, "-c", "import time; time.sleep(600)"), home.root, {}),
        home.run("demo-worker"),
        home.log("demo-worker"),
    )
    assert stack.down([fake.NAME]) == [fake.NAME]
    assert beside.is_running()
    assert stack.down() == ["demo-worker"]
    assert not beside.is_running()
    assert home.beside(()) == []


def test_up_publishes_the_address_and_down_takes_it_back(stack: Stack, mode: Mode) -> None:
    mode("good")
    url = stack.up([fake.NAME]).prometheus.url
    assert httpx.get(url, trust_env=False).status_code == 200
    assert read_json(stack.home.stack_file) == {fake.NAME: {"url": url}}
    assert state(stack) == "ready"
    assert stack.down() == [fake.NAME]
    assert read_json(stack.home.stack_file) == {}
    assert state(stack) == "stopped"
    assert stack.down() == []


def test_a_second_up_changes_nothing(stack: Stack, mode: Mode) -> None:
    mode("good")
    first = stack.up([fake.NAME])
    assert stack.up([fake.NAME]) == first
    assert starts(stack) == [str(pid(stack))]


def test_a_killed_part_comes_back_at_its_address_with_its_data(stack: Stack, mode: Mode) -> None:
    mode("good")
    url = stack.up([fake.NAME]).prometheus.url
    psutil.Process(pid(stack)).kill()
    assert stack.up([fake.NAME]).prometheus.url == url
    assert len(starts(stack)) == 2


def test_a_part_that_ends_is_told_with_its_last_lines(stack: Stack, mode: Mode) -> None:
    mode("dies")
    with pytest.raises(StackError) as raised:
        stack.up([fake.NAME])
    lines = str(raised.value).splitlines()
    assert "line 29" in str(raised.value)
    assert len(lines) == 1 + stack_module.LOG_LINES
    assert stack.home.launched() == {}


def test_a_part_that_does_not_answer_is_stopped_at_the_deadline(stack: Stack, mode: Mode) -> None:
    mode("deaf", ready_within_s=0.5)
    with pytest.raises(StackError, match="did not answer"):
        stack.up([fake.NAME])
    assert process.find(stack.home.run(fake.NAME)) is None


def test_a_stubborn_part_is_stopped_with_its_child(stack: Stack, mode: Mode) -> None:
    mode("stubborn")
    stack.up([fake.NAME])
    child = int((stack.home.data(fake.NAME) / "child").read_text())
    stack.down()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


def test_ctrl_c_leaves_the_part_stopped_and_up_works_afterwards(stack: Stack, mode: Mode) -> None:
    with subprocess.Popen([sys.executable, fake.__file__, "deaf"], stderr=subprocess.DEVNULL) as up:
        record = stack.home.run(fake.NAME)
        while process.find(record) is None:
            assert up.poll() is None
        up.send_signal(signal.SIGINT)
    assert up.returncode != 0
    assert process.find(record) is None
    mode("good")
    stack.up([fake.NAME])
    assert state(stack) == "ready"


def test_up_goes_on_after_a_killed_up(stack: Stack, mode: Mode) -> None:
    """The server that a killed launcher was starting is known, and is not started twice."""
    with subprocess.Popen([sys.executable, fake.__file__, "good"], stderr=subprocess.DEVNULL) as up:
        while process.find(stack.home.run(fake.NAME)) is None:
            assert up.poll() is None
        up.kill()
    mode("good")
    stack.up([fake.NAME])
    assert starts(stack) == [str(pid(stack))]


def test_two_ups_at_once_start_one_server(stack: Stack) -> None:
    ups = [
        subprocess.Popen([sys.executable, fake.__file__, "good"], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    urls = {up.communicate()[0].split()[0] for up in ups}
    assert len(urls) == 1
    assert len(starts(stack)) == 1


def test_a_port_lost_to_another_is_replaced(
    stack: Stack, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("good")
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        lost = thief.getsockname()[1]
        answers = iter([{"main": lost}])
        choose = ports.choose
        monkeypatch.setattr(ports, "choose", lambda *a: next(answers, None) or choose(*a))
        url = stack.up([fake.NAME]).prometheus.url
    assert not url.endswith(f":{lost}")
    assert state(stack) == "ready"


def fix(monkeypatch: pytest.MonkeyPatch, port: int) -> str:
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("HEADRACE_PROMETHEUS__URL", url)
    return url


def test_a_fixed_free_port_is_used(
    stack: Stack, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("good")
    url = fix(monkeypatch, free_port())
    assert stack.up([fake.NAME]).prometheus.url == url
    assert httpx.get(url, trust_env=False).status_code == 200


def test_a_fixed_port_of_somebody_else_is_named(
    stack: Stack, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("good")
    monkeypatch.setattr(PARTS[fake.NAME].ready.__globals__["probe"], "ASK_WITHIN_S", 0.2)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        fix(monkeypatch, port)
        with pytest.raises(ports.PortTaken, match=rf"port {port} .*pid {os.getpid()}"):
            stack.up([fake.NAME])


def test_our_server_goes_on_when_it_cannot_move_to_the_fixed_port(
    stack: Stack, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("good")
    stack.up([fake.NAME])
    before = pid(stack)
    monkeypatch.setattr(PARTS[fake.NAME].ready.__globals__["probe"], "ASK_WITHIN_S", 0.2)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        fix(monkeypatch, server.getsockname()[1])
        with pytest.raises(ports.PortTaken):
            stack.up([fake.NAME])
    assert pid(stack) == before


def test_our_server_moves_to_a_fixed_port(
    stack: Stack, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode("good")
    first = stack.up([fake.NAME]).prometheus.url
    second = fix(monkeypatch, free_port())
    assert stack.up([fake.NAME]).prometheus.url == second != first
    assert len(starts(stack)) == 2


def test_a_fixed_address_that_answers_is_given(
    stack: Stack, mode: Mode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mode("good")
    port = free_port()
    command = [sys.executable, str(fake.SERVER), str(port), str(tmp_path), "good"]
    with subprocess.Popen(command) as theirs:
        url = fix(monkeypatch, port)
        while not PARTS[fake.NAME].ready(Settings.read()):
            assert theirs.poll() is None
        assert stack.up([fake.NAME]).prometheus.url == url
        assert state(stack) == "given"
        assert stack.down() == []
        assert theirs.poll() is None
        theirs.kill()


def test_an_address_elsewhere_that_does_not_answer_is_an_error(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PROMETHEUS__URL", "http://prometheus.invalid:9090")
    with pytest.raises(StackError, match=r"nothing answers at prometheus\.invalid:9090"):
        stack.up([fake.NAME])


def test_clean_removes_everything(stack: Stack, mode: Mode) -> None:
    mode("good")
    stack.up([fake.NAME])
    stack.clean()
    assert not stack.home.root.exists()


def test_secrets_are_for_the_owner_only(stack: Stack) -> None:
    first = stack.home.secret("redis")
    assert stack.home.secret("redis") == first
    assert len(first) >= 32
    assert (stack.home.root / "secrets.json").stat().st_mode & 0o077 == 0


def test_needs_come_before_and_unknown_names_are_refused() -> None:
    assert [part.name for part in in_order(["registry"])] == ["kafka", "registry"]
    with pytest.raises(StackError, match="no such part: kafak; there are kafka"):
        in_order(["kafak"])
