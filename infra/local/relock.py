"""Writes `checksums.json` anew: resolves the servers below with Maven and records every file.

Run `python -m infra.local.relock` after changing a version here, and read the diff.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from infra.local.artifacts import CHECKSUMS, POM, Artifact

SERVERS = {
    "kafka": (
        "org.apache.kafka:kafka_2.13:jar:4.3.0",
        "org.apache.logging.log4j:log4j-core:jar:2.25.1",
    ),
    "registry": ("io.apicurio:apicurio-registry-app:tar.gz:all:3.3.3",),
    "cassandra": ("org.apache.cassandra:cassandra-all:jar:5.0.5",),
}
"""What each server starts from. The registry's archive contains its own jars."""
ROOT = """<dependency><groupId>{0.group}</groupId><artifactId>{0.name}</artifactId>
<version>{0.version}</version><type>{0.type}</type><classifier>{0.classifier}</classifier>
{1}</dependency>"""
ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"


def resolve(roots: tuple[str, ...]) -> dict[str, str]:
    """Coordinates and SHA-256 of the roots and all they need at run time."""
    maven = shutil.which("mvn")
    if maven is None:
        raise SystemExit("Maven is needed on PATH to resolve dependencies")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parsed = [Artifact.parse(root) for root in roots]
        dependencies = "".join(ROOT.format(a, "" if a.type == "jar" else ALONE) for a in parsed)
        pom = folder / "pom.xml"
        pom.write_text(POM.format(dependencies=dependencies))
        common = [maven, "-B", "-q", "-f", str(pom)]
        listing = folder / "list.txt"
        for goal in (
            (f"{PLUGIN}:list", f"-DoutputFile={listing}"),
            (f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={folder}"),
        ):
            subprocess.run([*common, *goal, "-DincludeScope=runtime"], check=True)
        lines = [line.split(" ")[0] for line in listing.read_text().split("\n   ")[1:]]
        found = sorted(line.strip().rpartition(":")[0] for line in lines)
        return {c: _digest(folder / Artifact.parse(c).file) for c in found}


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main() -> None:
    """Write the file."""
    content = {server: resolve(roots) for server, roots in SERVERS.items()}
    CHECKSUMS.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
