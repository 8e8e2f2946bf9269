"""Prometheus remote write 1.0: a snappy-compressed `WriteRequest` to samples.

Source: prometheus.io/docs/specs/prw/remote_write_spec.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from connectors.telemetry.line import (
    LABEL_CHARS_MAX,
    LABELS_MAX,
    NAME_CHARS_MAX,
    TIME_MS_MAX,
    clean,
)
from connectors.telemetry.prometheus_messages import METADATA_KINDS, WriteRequest
from connectors.telemetry.series import Sample, Series

STALE_BITS = 0x7FF0000000000002
"""The NaN that Prometheus writes where a series ends."""
STALE = struct.unpack(">d", STALE_BITS.to_bytes(8, "big"))[0]


class BadMessage(ValueError):
    """The bytes are not the message, or say something that cannot be; nothing was taken."""


@dataclass
class Decoded:
    """The samples of a request, and how many could not be taken, by reason."""

    samples: list[Sample] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def decode(body: bytes) -> Decoded:
    """The samples of an uncompressed `WriteRequest`. Raises `BadMessage`."""
    request = WriteRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise BadMessage(f"not a WriteRequest: {error}") from None
    kinds = {
        m.metric_family_name: (METADATA_KINDS.get(m.type, "UNKNOWN"), m.unit)
        for m in request.metadata
    }
    decoded = Decoded()
    for written in request.timeseries:
        labels = {label.name: label.value for label in written.labels if label.value}
        name = labels.pop("__name__", "")
        if not name or len(labels) > LABELS_MAX:
            reason = "too many labels" if name else "no metric name"
            decoded.refused[reason] += len(written.samples)
            continue
        series = _series(name, labels, kinds)
        decoded.samples += _samples(series, written.samples, decoded.refused)
    return decoded


def stale(value: float) -> bool:
    """Whether this is the marker of a series' end, and not another NaN."""
    return struct.pack(">d", value) == STALE_BITS.to_bytes(8, "big")


def _series(name: str, labels: Mapping[str, str], kinds: Mapping[str, tuple[str, str]]) -> Series:
    kind, unit = kinds.get(name) or kind_by_name(name)
    pairs = sorted((clean(k, NAME_CHARS_MAX), clean(v, LABEL_CHARS_MAX)) for k, v in labels.items())
    return Series(clean(name, NAME_CHARS_MAX), tuple(pairs), kind, unit)


def kind_by_name(name: str) -> tuple[str, str]:
    """Kind and unit that a name says by Prometheus' conventions; metadata comes rarely."""
    if name.endswith(("_bucket", "_count", "_sum")):
        return "HISTOGRAM", ""
    return ("COUNTER", "") if name.endswith("_total") else ("UNKNOWN", "")


def _samples(series: Series, written: Any, refused: Counter[str]) -> Iterator[Sample]:
    for sample in written:
        if not 0 <= sample.timestamp < TIME_MS_MAX:
            refused["time out of range"] += 1
        elif math.isfinite(sample.value):
            yield Sample(series, sample.timestamp, sample.value)
        elif stale(sample.value):
            yield Sample(series, sample.timestamp, None)
        else:
            refused["not a finite number"] += 1
