"""Attributes: OTLP's `AnyValue` to text and labels."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from connectors.telemetry.line import labelled

DEPTH_MAX = 16


def plain(value: Any, depth: int = 0) -> Any:
    """An `AnyValue` as Python has it; bytes as Base64, what is nested too deep as its type."""
    kind = value.WhichOneof("value")
    match kind:
        case None:
            return None
        case "array_value" | "kvlist_value" if depth >= DEPTH_MAX:
            return kind
        case "array_value":
            return [plain(inner, depth + 1) for inner in value.array_value.values]
        case "kvlist_value":
            return {p.key: plain(p.value, depth + 1) for p in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind)


def pairs(attributes: Iterable[Any]) -> list[tuple[str, Any]]:
    """Attributes with plain values."""
    return [(attribute.key, plain(attribute.value)) for attribute in attributes]


def labels(attributes: Iterable[Any]) -> dict[str, str]:
    """Attributes as labels."""
    return labelled(pairs(attributes))
