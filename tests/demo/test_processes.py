"""One demo at a time has a home, and ends only what a dead one left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.cli.demo import demo
from infra.demo.processes import API, alone
from infra.error import StackError
from infra.local import PARTS, process
from infra.local.home import CHECKOUT, Home
from infra.local.process import Launch

HOLD = """
import sys, time
from pathlib import Path
from infra.demo.processes import alone
from infra.local.home import Home
with alone(Home(Path(sys.argv[1])), "headrace demo links"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    process.end(made.beside(PARTS))


def serve(home: Home) -> None:
    """Something that stands for a demo's API."""
    launch = Launch((sys.executable, "-c", "import time; time.sleep(600)"), CHECKOUT)
    process.start(launch, home.run(API), home.log(API))


def serves(home: Home) -> bool:
    return process.find(home.run(API)) is not None


def test_a_second_demo_says_what_runs_and_ends_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(home.root))
    with alone(home, "headrace demo payments"):
        serve(home)
        with pytest.raises(
            StackError, match=r"headrace demo payments \(process \d+\) runs in"
        ) as no:
            demo(["ids"])
        assert "HEADRACE_HOME=" in str(no.value)
        assert serves(home)


def test_what_a_killed_demo_left_is_ended_and_its_lock_is_free(home: Home) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home.root)], stdout=subprocess.PIPE, cwd=CHECKOUT
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    serve(home)
    with pytest.raises(StackError, match="headrace demo links"), alone(home, "another"):
        pass
    assert serves(home)
    holder.kill()
    holder.communicate()
    with alone(home, "another"):
        assert not serves(home)


def test_homes_are_apart(tmp_path: Path) -> None:
    with alone(Home(tmp_path / "one"), "one"), alone(Home(tmp_path / "two"), "two"):
        assert (tmp_path / "one" / "demo.lock").read_text().startswith("one (process ")
