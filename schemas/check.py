"""Check schemas against what exists already: declared versions, a commit, the registry.

Each finding says which record, against what, and which field breaks and why.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from schemas.compatibility import breaks, changed_defaults
from schemas.examples import ExampleError, read_example
from schemas.generate import stale
from schemas.generate.declaration import SCHEMAS, declared
from schemas.registry import RegistryClient
from streams.runtime.topic import Topic

Versions = Sequence[tuple[str, dict[str, Any]]]
"""Labelled versions of one record, oldest first."""


class GitError(Exception):
    """Git is missing, this is no repository, or there is no such revision."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: the record or file, what it was compared with, what and why."""

    subject: str
    against: str
    what: str


def check_generated(systems: Iterable[str], root: Path = SCHEMAS) -> Iterator[Finding]:
    """Generated files that are not what generation gives."""
    for path in stale(systems, root):
        what = "differs from what is declared: headrace schemas generate"
        yield Finding(str(path.relative_to(root.parent)), "topics.toml and .avsc", what)


def check_examples(systems: Iterable[str], root: Path = SCHEMAS) -> Iterator[Finding]:
    """Examples that are not what their schema says, and schemas without one."""
    for system in systems:
        for file in declared(system, root).files:
            if not list(file.examples()):
                yield Finding(file.fullname, file.path.name, "has no example")
            for path in file.examples():
                try:
                    read_example(file, path)
                except ExampleError as error:
                    yield Finding(file.fullname, path.name, str(error))


def check_versions(systems: Iterable[str], root: Path = SCHEMAS) -> Iterator[Finding]:
    """Every declared version of each record against every later one."""
    for system in systems:
        for files in declared(system, root).records.values():
            labelled = [(f"v{file.version}", file.schema) for file in files]
            for at in range(1, len(labelled)):
                yield from compare(files[0].fullname, labelled[:at], *labelled[at])


def check_git(
    systems: Iterable[str], revision: str = "HEAD", root: Path = SCHEMAS
) -> Iterator[Finding]:
    """The newest schemas against all that a commit holds; also records that are gone.

    Raises `GitError`.
    """
    present = {s: declared(s, root).records for s in systems}
    for system, record, committed in _committed(revision, root):
        fullname = f"headrace.{system}.{record}"
        files = present.get(system, {}).get(record)
        if files is None:
            what = "removed, but its events are still on the log"
            yield Finding(fullname, committed[-1][0], what)
        else:
            yield from compare(fullname, committed, f"v{files[-1].version}", files[-1].schema)


def check_registry(topics: Iterable[Topic], client: RegistryClient) -> Iterator[Finding]:
    """The newest schemas against all versions that the registry holds.

    Raises `RegistryError`.
    """
    for topic in topics:
        for record in topic.records:
            subject = topic.subject(record)
            held = [(f"registry version {v}", schema) for v, schema in client.stored(subject)]
            yield from compare(subject, held, "declared", record.schema)


def compare(subject: str, past: Versions, label: str, newest: dict[str, Any]) -> Iterator[Finding]:
    """One schema against the versions before it."""
    for against, schema in past:
        for found in breaks(schema, newest):
            yield Finding(subject, f"{against} → {label}", str(found))
    for found in changed_defaults([*(schema for _, schema in past), newest]):
        yield Finding(subject, f"{past[-1][0]} → {label}", str(found))


def _committed(revision: str, root: Path) -> Iterator[tuple[str, str, Versions]]:
    """(system, record, its versions) of a commit, from the `.avsc` files below `root`."""
    tree = ("ls-tree", "-r", "--name-only", "--end-of-options", revision, "--", ".")
    found: dict[tuple[str, str], list[tuple[int, str, dict[str, Any]]]] = {}
    for name in _git(root, *tree).splitlines():
        path = PurePosixPath(name)
        if path.suffix != ".avsc" or len(path.parts) != 2:
            continue
        schema = json.loads(_git(root, "show", "--end-of-options", f"{revision}:./{name}"))
        version = int(path.stem.rsplit(".v", 1)[-1])
        label = f"{revision}:{root.name}/{name}"
        found.setdefault((path.parts[0], schema["name"]), []).append((version, label, schema))
    for (system, record), versions in sorted(found.items()):
        ordered = sorted(versions, key=lambda version: version[0])
        yield system, record, [(label, schema) for _, label, schema in ordered]


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, no shell
            ["git", "-C", str(root), *arguments],  # noqa: S607 - the user's git
            check=True,
            capture_output=True,
            text=True,
            encoding="utf-8",
        )
    except FileNotFoundError as error:
        raise GitError("git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise GitError(error.stderr.strip()) from error
    return done.stdout
