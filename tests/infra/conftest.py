"""A home of its own for every test, and what is left in it is stopped."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.local import PARTS, Stack
from infra.local.home import CHECKOUT, Home

sys.path.insert(0, str(Path(__file__).parent))
import fake

sys.path.pop(0)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    for name in [n for n in os.environ if n.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    home = Home(tmp_path / "home")
    monkeypatch.setenv("HEADRACE_HOME", str(home.root))
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    yield home
    Stack(home=home, way="native").down()
    left = [p.pid for p in psutil.process_iter() if str(tmp_path) in " ".join(_command(p))]
    assert not left, f"processes left behind: {left}"


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def stack(home: Home) -> Stack:
    return Stack(home=home, way="native")


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make one part of the stack behave as told; see `fake_server`."""

    def set_mode(mode: str, **more: float) -> None:
        monkeypatch.setitem(PARTS, fake.NAME, fake.part(mode, **more))

    return set_mode
