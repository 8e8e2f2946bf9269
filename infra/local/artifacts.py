"""Downloads of Java servers: exact artifacts, each checked against a recorded SHA-256.

`checksums.json` names, per server, every jar or archive as Maven coordinates with its digest.
The list is closed: nothing is resolved at install time, so Maven and `jgo` (used where Maven is
not on PATH) yield the same files. `python -m infra.local.relock` writes the list anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from infra.error import StackError
from infra.local.part import Say, Site

CHECKSUMS = Path(__file__).with_name("checksums.json")


@dataclass(frozen=True)
class Artifact:
    """`group:name:type[:classifier]:version`, as `mvn dependency:list` prints it."""

    group: str
    name: str
    type: str
    classifier: str
    version: str

    @classmethod
    def parse(cls, coordinates: str) -> Artifact:
        group, name, kind, *classifier, version = coordinates.split(":")
        return cls(group, name, kind, classifier[0] if classifier else "", version)

    @property
    def file(self) -> str:
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{classifier}.{self.type}"


class Corrupt(StackError):
    """A downloaded file is not the recorded one."""


def recorded(server: str) -> dict[Artifact, str]:
    """The artifacts of a server with their digests."""
    content: dict[str, dict[str, str]] = json.loads(CHECKSUMS.read_text())
    return parsed(content[server])


def parsed(digests: Mapping[str, str]) -> dict[Artifact, str]:
    """Digests by artifact, of digests by coordinates."""
    return {Artifact.parse(c): digest for c, digest in digests.items()}


def jars(site: Site, server: str) -> Path:
    """The folder with all files of a server; see `fetched`."""
    return fetched(site, server, recorded(server))


def fetched(site: Site, name: str, wanted: Mapping[Artifact, str]) -> Path:
    """The folder with exactly these files, downloaded if it is not complete yet.

    Raises `Corrupt` if a file differs from its record, `StackError` if it cannot be had.
    """
    folder = site.home.lib / f"{name}-{_fingerprint(wanted)}"
    if folder.is_dir():
        return folder
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    site.say(f"downloading {len(wanted)} files")
    if maven := shutil.which("mvn"):
        _by_maven(maven, wanted, fresh, site.progress)
    else:
        _by_jgo(wanted, fresh, site.home.lib / "m2", site.progress)
    for artifact, digest in wanted.items():
        check(fresh / artifact.file, digest)
    fresh.rename(folder)
    return folder


def unpacked(site: Site, server: str) -> Path:
    """Like `jars`, for a server that is one archive: the folder of its content."""
    archive = next(iter(jars(site, server).iterdir()))
    folder = archive.parent.with_name(archive.parent.name + ".d")
    if not folder.is_dir():
        site.say(f"unpacking {archive.name}")
        fresh = folder.with_name(folder.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        with tarfile.open(archive) as content:
            content.extractall(fresh, filter="data")
        fresh.rename(folder)
    return folder


def check(file: Path, digest: str) -> None:
    """Raise `Corrupt` unless the file has this SHA-256."""
    with file.open("rb") as content:
        actual = hashlib.file_digest(content, "sha256").hexdigest()
    if actual != digest:
        raise Corrupt(f"{file.name}: SHA-256 is {actual}, recorded is {digest}")


def _fingerprint(wanted: Mapping[Artifact, str]) -> str:
    return hashlib.sha256("".join(sorted(wanted.values())).encode()).hexdigest()[:8]


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>headrace</groupId><artifactId>download</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = """<dependency><groupId>{0.group}</groupId><artifactId>{0.name}</artifactId>
<version>{0.version}</version><type>{0.type}</type><classifier>{0.classifier}</classifier>
<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
</dependency>"""


def _by_maven(maven: str, wanted: Mapping[Artifact, str], folder: Path, progress: Say) -> None:
    """Let Maven fetch the files: it knows the user's mirrors, proxies and local repository."""
    dependencies = "".join(DEPENDENCY.format(a) for a in wanted)
    pom = folder / "pom.xml"
    pom.write_text(POM.format(dependencies=dependencies))
    output: list[str] = []
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    command = [maven, "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                output.append(line)
                if line.startswith("[INFO] Downloaded"):
                    progress(f"downloaded {line.strip().rsplit('/', 1)[-1]}")
        except KeyboardInterrupt:
            running.kill()
            raise
    if running.returncode:
        raise StackError("Maven could not download:\n" + "".join(output[-20:]))
    pom.unlink()


def _by_jgo(wanted: Mapping[Artifact, str], folder: Path, cache: Path, progress: Say) -> None:
    """Fetch the files one by one in Python, four at a time."""
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=cache, local_repos=[], timeout=60)

    def fetch(artifact: Artifact) -> str:
        component = context.project(artifact.group, artifact.name).at_version(artifact.version)
        source = component.artifact(artifact.classifier, artifact.type).resolve()
        shutil.copyfile(source, folder / artifact.file)
        return artifact.file

    with ThreadPoolExecutor(4) as pool:
        for n, name in enumerate(pool.map(fetch, wanted), start=1):
            progress(f"{n} of {len(wanted)}: {name}")
    shutil.rmtree(cache, ignore_errors=True)
