"""Generate each system's `events.py` from its `topics.toml` and `.avsc` files.

The generated files are committed, so that a reader of the code can jump to them and mypy
checks them; a test (and `headrace schemas check`) proves that generating leaves no diff.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from schemas.generate.declaration import SCHEMAS, declared
from schemas.generate.render import render


def stale(systems: Iterable[str], root: Path = SCHEMAS) -> dict[Path, str]:
    """Generated files whose text on disk differs from what it should be, with that text."""
    texts = {root / system / "events.py": render(declared(system, root)) for system in systems}
    return {path: text for path, text in texts.items() if _on_disk(path) != text}


def generate(systems: Iterable[str], root: Path = SCHEMAS) -> list[Path]:
    """Write what is stale; returns the files written. `DeclarationError` writes nothing."""
    changed = stale(systems, root)
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
    return list(changed)


def _on_disk(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
