"""`./dev` and the lock behind it."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.local import environment
from infra.local.home import CHECKOUT

LOCK = (CHECKOUT / "requirements.lock").read_text()
LOCKS = [CHECKOUT / "requirements.lock", *(CHECKOUT / "infra" / "local" / "jdk").glob("*.txt")]
SYSTEM_PATH = "/usr/bin:/bin"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda file: file.name)
def test_a_lock_pins_and_hashes_everything_and_names_no_place(lock: Path) -> None:
    text = lock.read_text()
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert all(re.match(r"[a-z0-9-]+(\[[^]]*\])?==\S+", block) for block in blocks)
    assert all("--hash=sha256:" in block for block in blocks)
    assert not re.search(r"://|find-links|index-url|/home/|/root/|/tmp/", text)


def test_one_requirement_is_cut_out_with_its_hashes() -> None:
    cut = environment.requirement(LOCK, "uv")
    assert cut.startswith("uv==")
    assert cut.count("==") == 1
    assert cut.count("--hash=sha256:") >= 1
    with pytest.raises(LookupError, match="nothing-like-it"):
        environment.requirement(LOCK, "nothing-like-it")


def dev(home: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": path, "HEADRACE_HOME": str(home), "HOME": str(home)}
    return subprocess.run(
        [CHECKOUT / "dev", *arguments], env=variables, capture_output=True, text=True, check=False
    )


def python(folder: Path, body: str) -> str:
    """A folder to put on PATH whose `python3` is this shell script."""
    folder.mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14", "python"):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    return f"{folder}:{SYSTEM_PATH}"


def test_an_old_python_is_refused_in_words(tmp_path: Path) -> None:
    path = python(tmp_path / "bin", "exit 1")
    done = dev(tmp_path / "home", path, "up")
    assert done.returncode == 69
    assert "Python 3.11 or newer is needed" in done.stderr


def test_a_missing_venv_module_is_explained(tmp_path: Path) -> None:
    path = python(tmp_path / "bin", 'case "$2" in *venv*) exit 1;; esac')
    done = dev(tmp_path / "home", path, "up")
    assert done.returncode == 69
    assert "apt-get install python3-venv" in done.stderr


def test_the_environment_is_made_once_and_then_used(tmp_path: Path) -> None:
    """With a Python that makes an environment of two scripts in place of the real one."""
    body = """
case "$1" in -c) exit 0;; esac
echo made >> "$HOME.log"
mkdir -p "$3/bin" && echo "$4" > "$3/stamp"
printf '#!/bin/sh\\necho ran "$@"\\n' > "$3/bin/headrace" && chmod +x "$3/bin/headrace"
"""
    path = python(tmp_path / "bin", body)
    for _ in range(2):
        done = dev(tmp_path / "home", path, "up", "a b")
        assert (done.returncode, done.stdout) == (0, "ran up a b\n")
    assert (tmp_path / "home.log").read_text() == "made\n"


def test_dev_is_a_program_for_any_posix_shell() -> None:
    file = CHECKOUT / "dev"
    assert os.access(file, os.X_OK)
    assert file.read_text().startswith("#!/bin/sh\n")
    assert not re.search(r"\[\[|\bfunction\b|<<<|\blocal\b\s", file.read_text())


def test_the_lock_has_everything_that_the_project_asks_for() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", LOCK, re.M))
    for line in asked:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{line}: write the lock anew (CONTRIBUTING.md)"
        assert requirement.specifier.contains(locked[name], prereleases=True), line
