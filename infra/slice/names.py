"""The names of a new system and of its first event: which are good, and which are free."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from infra.slice.lists import bound
from schemas.generate.declaration import snake
from schemas.generate.render import constant

NAME_CHARS_MAX = 30
EVENT_CHARS_MAX = 40
"""With these, no line of a new file is too long."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_EVENT = re.compile(r"[A-Z][a-z0-9]+([A-Z][a-z0-9]+)+")
_PLACES = (
    *("schemas", "streams", "sinks", "api/routes", "tests"),
    *("infra/docs", "infra/grafana/dashboards", "infra/grafana/systems"),
)
_IMPORTERS = ("api/app.py", "infra/grafana/generate.py")
"""Modules that import every system by its bare name."""


class BadName(ValueError):
    """A name that a system or an event cannot have; the message says why."""


@dataclass(frozen=True)
class Names:
    """A system and its first event, in every form that files need."""

    system: str
    event: str

    @classmethod
    def of(cls, system: str, event: str | None = None) -> Names:
        """Checked names; without one the event is `<System>Recorded`. Raises `BadName`."""
        if not _NAME.fullmatch(system):
            near = re.sub(r"[^a-z0-9]+", "_", snake(system)).strip("_0123456789")
            hint = f", for example {near}" if _NAME.fullmatch(near) else ""
            raise BadName(f"{system!r} is not snake_case{hint}")
        if keyword.iskeyword(system) or keyword.issoftkeyword(system):
            raise BadName(f"{system} is a keyword of Python, so no module can have that name")
        if len(system) > NAME_CHARS_MAX:
            raise BadName(f"{system} is longer than {NAME_CHARS_MAX} characters")
        event = event or f"{_pascal(system)}Recorded"
        if not _EVENT.fullmatch(event):
            raise BadName(f"{event!r} is not what happened in CamelCase, like ScoreSubmitted")
        if len(event) > EVENT_CHARS_MAX:
            raise BadName(f"{event} is longer than {EVENT_CHARS_MAX} characters; choose --event")
        return cls(system, event)

    @property
    def record(self) -> str:
        """The event's name in file names."""
        return snake(self.event)

    @property
    def words(self) -> Mapping[str, str]:
        """What stands in the templates, by placeholder."""
        return {
            "name": self.system,
            "title": self.system.replace("_", " ").capitalize(),
            "pascal": _pascal(self.system),
            "event": self.event,
            "constant": constant(self.event),
        }

    def check_free(self, root: Path, systems: Iterable[str], words: Set[str]) -> None:
        """Raise `BadName` where a name is in use: by a system, a file, an import or an event.
        `words` are those of the templates, which the event would shadow.
        """
        if self.system in systems:
            raise BadName(f"{self.system} is a system already; headrace where {self.system}")
        for taken in (path for place in _PLACES for path in _holding(root / place, self.system)):
            raise BadName(f"{self.system} is taken by {taken.relative_to(root)}")
        for path in _IMPORTERS:
            if self.system in bound((root / path).read_text(encoding="utf-8")):
                raise BadName(f"{self.system} means something else in {path}")
        for schema in (root / "schemas").glob(f"*/{self.record}.v1.avsc"):
            raise BadName(f"{self.event} is an event of {schema.parent.name}; choose --event")
        if words & {self.event, constant(self.event)}:
            raise BadName(f"{self.event} means something else in the new files; choose --event")


def _holding(folder: Path, stem: str) -> Iterator[Path]:
    """Files and folders of that name, whatever their suffix; not what only caches are left of."""
    for path in sorted(folder.glob(f"{stem}*")):
        if path.name == stem or path.name.startswith(f"{stem}."):
            inside = path.rglob("*") if path.is_dir() else [path]
            if any(one.is_file() and one.parent.name != "__pycache__" for one in inside):
                yield path


def _pascal(system: str) -> str:
    return "".join(part.capitalize() for part in system.split("_"))
