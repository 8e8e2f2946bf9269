"""Adding a system to the project's explicit lists, by editing their source.

The list is found with `ast` and its text edited in place, so comments and everything around it
stay as they are; line breaks are the formatter's. Both functions raise `NoPlace`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from infra.error import StackError


class NoPlace(StackError):
    """The text is not as expected, so nothing was changed; the message says what is missing."""


def with_entry(text: str, variable: str, name: str, entry: str, systems: Sequence[str]) -> str:
    """`text` with `entry` in its top-level tuple or dict `variable`, or in the dict that the
    function of that name yields, before the first system that sorts after `name`. Entries that
    belong to no system (an overview, a health check) stay put.
    """
    known = [span for span in _entries(_value(text, variable)) if span[0] in systems]
    return _inserted(text, known, name, entry, f"the list {variable}")


def with_line(text: str, line: str) -> str:
    """`text` with another import, after its last; sorting is the formatter's."""
    imports = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
    if not imports:
        raise NoPlace("there are no imports")
    lines = text.splitlines(keepends=True)
    return "".join(
        [*lines[: imports[-1].end_lineno], f"{line}\n", *lines[imports[-1].end_lineno :]]
    )


def strings(text: str, variable: str) -> tuple[str, ...]:
    """The top-level tuple of strings `variable`."""
    return tuple(owner for owner, _, _ in _entries(_value(text, variable)))


def with_import(text: str, module: str, name: str) -> str:
    """`text` with `name` in its line `from module import …`, in alphabetical order."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == module:
            known: list[_Span] = [(one.name, one, one) for one in node.names]
            return _inserted(text, known, name, name, f"the import from {module}")
    raise NoPlace(f"there is no line: from {module} import …")


def bound(text: str) -> set[str]:
    """Every name that the module's top level imports, defines or assigns."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        match node:
            case ast.Import(names=found) | ast.ImportFrom(names=found):
                names |= {(one.asname or one.name).split(".")[0] for one in found}
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {one.id for one in targets if isinstance(one, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def _value(text: str, variable: str) -> ast.expr:
    for node in ast.parse(text).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=found)], value=value)
                | ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
            ) if found == variable:
                return value
            case ast.AsyncFunctionDef(name=found) if found == variable:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Yield) and isinstance(inner.value, ast.Dict):
                        return inner.value
    raise NoPlace(f"there is no top-level list {variable}")


_Span = tuple[str, ast.expr | ast.alias, ast.expr | ast.alias]
"""The system an entry belongs to (or another word), its first and its last node."""


def _entries(value: ast.expr) -> list[_Span]:
    match value:
        case ast.Tuple(elts=entries):
            return [(_owner(entry), entry, entry) for entry in entries]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return [(_owner(key), key, value) for key, value in pairs if key is not None]
    return []


def _owner(entry: ast.expr) -> str:
    """`"ads"` and `ads.router` both belong to `ads`."""
    match entry:
        case ast.Constant(value=str(word)) | ast.Attribute(value=ast.Name(id=word)):
            return word
    return ""


def _inserted(text: str, known: list[_Span], name: str, entry: str, where: str) -> str:
    if not known:
        raise NoPlace(f"{where} names no system")
    raw = text.encode()
    lines = raw.splitlines(keepends=True)

    def at(line: int | None, column: int | None) -> int:
        return sum(map(len, lines[: (line or 1) - 1])) + (column or 0)

    later = next((first for owner, first, _ in known if owner > name), None)
    if later is not None:
        cut, new = at(later.lineno, later.col_offset), f"{entry}, "
    else:
        last = known[-1][2]
        cut, new = at(last.end_lineno, last.end_col_offset), f", {entry}"
    return (raw[:cut] + new.encode() + raw[cut:]).decode()
