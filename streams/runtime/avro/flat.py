"""Which schemas the column reader decodes, as it wants to be told."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from streams.runtime.avro.container import column
from streams.runtime.avro.schema import Type
from streams.runtime.native.available import available, library

_FLAT = frozenset({"int", "long", "enum", "float", "double", "boolean", "bytes", "string", "fixed"})


def layout(writer: Type, wanted: Collection[int]) -> Any:
    """The layout that reads the fields at the `wanted` positions; None where the record is not
    flat or the column reader is not there.

    Flat: every field is a primitive, an enum or a fixed, or a union of null and one of these.
    """
    if not available() or not writer.fields:
        return None
    types = [field.type.required for field in writer.fields]
    if any(one is None or one.kind not in _FLAT for one in types):
        return None
    named = wanted or {0}  # One column at least: it tells how many rows there are.
    return library().Layout(
        [
            (one.kind, one.size, _null_branch(field.type), column(at) if at in named else None)
            for at, (field, one) in enumerate(zip(writer.fields, types, strict=True))
            if one is not None
        ]
    )


def _null_branch(t: Type) -> int | None:
    if t.kind != "union":
        return None
    return next(at for at, branch in enumerate(t.branches) if branch.kind == "null")
