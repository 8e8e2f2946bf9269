"""Source files, each of another language, as Pygments' tests have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath


def texts(files: Mapping[str, bytes]) -> dict[str, str]:
    """Pygments' short name of the language → the text; folders are called so."""
    return {PurePosixPath(member).parent.name: raw.decode() for member, raw in files.items()}
