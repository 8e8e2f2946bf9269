"""JVM engines: their jars, locked; our programs for them (`java/*.java`), compiled on change.

A program whose class name contains `Flink` or `Streams` is for that engine alone and is compiled
against its jars; every other file is shared by both. `java/<engine>.lock` names the jars with
their digests (`relock` writes it); a user needs a JDK and nothing else.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal

from infra.error import StackError
from infra.local import artifacts
from infra.local.home import Home
from infra.local.java import version
from infra.local.part import Site
from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.contenders.finish import WARM_UP

Engine = Literal["flink", "streams"]
ENGINES: tuple[Engine, ...] = ("flink", "streams")
SOURCES = Path(__file__).parent / "java"
JAVA_LOWEST = 17
_JVM = (
    *("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED"),
    *("--add-opens=java.base/java.time=ALL-UNNAMED", f"-Dbench.warm_up={WARM_UP}"),
    f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}",
)
"""What every program runs with; Flink reflects on the opened packages."""


def command(
    main_class: str,
    *args: object,
    heap: str = "3g",
    jvm: Sequence[str] = (),
    engine: Engine = "flink",
) -> list[str]:
    """The command of a program of ours, built if it is not yet: no clock runs during the build.

    `heap` is both least and most; temporary files go below the home. Raises `StackError` when
    there is no JDK, a jar cannot be had, or the sources do not compile.
    """
    libs = jars(engine)
    memory = (f"-Xms{heap}", f"-Xmx{heap}", f"-Djava.io.tmpdir={_folder('tmp')}")
    path = ("-cp", f"{_classes(engine, libs)}:{libs}/*")
    return [str(_jdk() / "java"), *memory, *_JVM, *jvm, *path, main_class, *map(str, args)]


def missing() -> str:
    """Why JVM engines cannot be measured on this machine; empty if they can."""
    try:
        _jdk()
    except StackError as error:
        return str(error)
    return ""


def versions() -> dict[str, str]:
    """Versions of the runtime and of what decides an engine's speed, for result files."""
    locked = {a.name: a.version for engine in ENGINES for a in artifacts.parsed(lock(engine))}
    names = ("flink-streaming-java", "flink-connector-kafka", "kafka-streams", "avro")
    return {"java": str(version(str(_jdk() / "java"))), **{name: locked[name] for name in names}}


def jars(engine: Engine) -> Path:
    """The folder of an engine's jars, fetched if they are not there yet."""
    with _alone():
        say = report.console.print
        site = Site(Home.default(), {}, Settings.read(), say, lambda _: None)
        return artifacts.fetched(site, f"peer-{engine}", artifacts.parsed(lock(engine)))


def lock(engine: Engine) -> dict[str, str]:
    """Digests of an engine's jars by their Maven coordinates."""
    content: dict[str, str] = json.loads((SOURCES / f"{engine}.lock").read_text())
    return content


def sources(engine: Engine) -> list[Path]:
    """The files that are compiled for an engine: its own and the shared ones."""
    others = [other.capitalize() for other in ENGINES if other != engine]
    files = sorted(SOURCES.glob("*.java"))
    return [file for file in files if not any(other in file.stem for other in others)]


def _classes(engine: Engine, libs: Path) -> Path:
    """The folder of compiled programs. Its name is a digest of all they come from, so checkouts
    that share a home do not disturb each other.
    """
    files = sources(engine)
    stamp = hashlib.sha256(f"{libs.name} {_jdk()}".encode())
    for file in files:
        stamp.update(file.read_bytes())
    folder = _folder("classes") / f"{engine}-{stamp.hexdigest()[:12]}"
    with _alone():
        if not folder.is_dir():
            _compile(files, libs, folder)
    return folder


def _compile(files: Sequence[Path], libs: Path, folder: Path) -> None:
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    options = ("-nowarn", "-proc:none", "--release", str(JAVA_LOWEST), "-d", str(fresh))
    done = subprocess.run(
        [str(_jdk() / "javac"), *options, "-cp", f"{libs}/*", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(f"javac: {done.stderr.strip()}")
    fresh.rename(folder)


@cache
def _jdk() -> Path:
    """The folder with `java` and `javac`: of `JAVA_HOME`, else of the `javac` on PATH."""
    home, found = os.environ.get("JAVA_HOME"), shutil.which("javac")
    folders = [Path(home) / "bin"] if home else []
    folders += [Path(found).resolve().parent] if found else []
    for folder in folders:
        if (folder / "javac").exists() and (version(str(folder / "java")) or 0) >= JAVA_LOWEST:
            return folder
    raise StackError(
        f"a JDK of Java {JAVA_LOWEST} or newer is needed (JAVA_HOME, or javac on PATH)"
    )


def _folder(name: str) -> Path:
    folder = Home.default().root / "peers" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time downloads or compiles."""
    with (_folder("") / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
