"""OTLP metrics to the samples that Prometheus would have of them.

Source: opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics. Names get the
unit and `_total`; histograms become `_bucket`, `_count` and `_sum`; the resource becomes `job` and
`instance`. Refused, with the reason: deltas (their sum needs a state that a restart would lose)
and exponential histograms.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags

from connectors.telemetry.line import LABEL_CHARS_MAX, NAME_CHARS_MAX, NANOS_MS, TIME_MS_MAX, clean
from connectors.telemetry.otlp import values
from connectors.telemetry.otlp.logs import INSTANCE, NAMESPACE, SERVICE
from connectors.telemetry.remote_write import Decoded
from connectors.telemetry.series import Sample, Series

UNITS = {
    "d": "days", "h": "hours", "min": "minutes", "s": "seconds", "ms": "milliseconds",
    "us": "microseconds", "ns": "nanoseconds", "By": "bytes", "KiBy": "kibibytes",
    "MiBy": "mebibytes", "KBy": "kilobytes", "MBy": "megabytes", "m": "meters", "V": "volts",
    "A": "amperes", "J": "joules", "W": "watts", "g": "grams", "Cel": "celsius", "Hz": "hertz",
    "%": "percent", "1": "",
}  # fmt: skip
_NOT_NAME = re.compile(r"[^a-zA-Z0-9_:]+")
_NOT_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_NO_VALUE = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


def decode(request: Any) -> Decoded:
    """The samples of a request, and how many data points were refused, by reason."""
    decoded = Decoded()
    for resource_metrics in request.resource_metrics:
        target = _target(dict(values.pairs(resource_metrics.resource.attributes)))
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                _take(metric, target, decoded)
    return decoded


def _take(metric: Any, target: dict[str, str], decoded: Decoded) -> None:
    kind = metric.WhichOneof("data")
    data = None if kind is None else getattr(metric, kind)
    points = [] if data is None else list(data.data_points)
    reason = _refusal(metric, kind, data)
    if reason:
        decoded.refused[reason] += len(points)
        return
    monotonic = kind == "sum" and bool(metric.sum.is_monotonic)
    name = metric_name(metric.name, metric.unit, monotonic=monotonic)
    for point in points:
        time_ms = point.time_unix_nano // NANOS_MS
        if not 0 < time_ms < TIME_MS_MAX:
            decoded.refused["time out of range"] += 1
            continue
        labels = {**_labels(point.attributes), **target}
        of_point = list(_point(kind, point, name, labels, metric.unit, monotonic=monotonic))
        if all(value is None or math.isfinite(value) for _, value in of_point):
            decoded.samples += [Sample(series, time_ms, value) for series, value in of_point]
        else:
            decoded.refused["not a finite number"] += 1


def _refusal(metric: Any, kind: str | None, data: Any) -> str:
    if kind is None:
        return "no data"
    if not _NOT_NAME.sub("", metric.name).strip("_"):
        return "no metric name"
    if kind == "exponential_histogram":
        return "exponential histogram"
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    if kind in {"sum", "histogram"} and data.aggregation_temporality != cumulative:
        return "not cumulative"
    return ""


def metric_name(name: str, unit: str, *, monotonic: bool) -> str:
    """`http.server.duration` in `ms` is `http_server_duration_milliseconds`."""
    parts = [_NOT_NAME.sub("_", name).strip("_")]
    worded = UNITS.get(unit, "")
    if worded and worded not in parts[0]:
        parts.append(worded)
    if monotonic:
        parts = [part.removesuffix("_total") for part in parts] + ["total"]
    full = "_".join(parts)
    return clean(f"_{full}" if full[:1].isdigit() else full, NAME_CHARS_MAX)


def _target(resource: dict[str, Any]) -> dict[str, str]:
    namespace, service = resource.get(NAMESPACE), resource.get(SERVICE)
    job = f"{namespace}/{service}" if namespace and service else service
    named = {"job": job, "instance": resource.get(INSTANCE)}
    return {k: clean(str(v), LABEL_CHARS_MAX) for k, v in named.items() if v}


def _labels(attributes: Any) -> dict[str, str]:
    """Two attributes that become one label are joined by `;`, as the specification says."""
    labels: dict[str, str] = {}
    for key, value in sorted(values.labels(attributes).items()):
        name = _NOT_LABEL.sub("_", key)
        name = f"key_{name}" if name[:1].isdigit() else name
        labels[name] = f"{labels[name]};{value}" if name in labels else value
    return labels


def _point(
    kind: str, point: Any, name: str, labels: dict[str, str], unit: str, *, monotonic: bool
) -> Iterator[tuple[Series, float | None]]:
    ended = bool(point.flags & _NO_VALUE)

    def of(suffix: str, value: float, kind: str, **more: str) -> tuple[Series, float | None]:
        pairs = tuple(sorted({**labels, **more}.items()))
        return Series(name + suffix, pairs, kind, unit), None if ended else float(value)

    match kind:
        case "gauge" | "sum":
            yield of("", _number(point), "COUNTER" if monotonic else "GAUGE")
        case "histogram":
            total = 0
            bounds = [*map(_bound, point.explicit_bounds), "+Inf"]
            for bound, count in zip(bounds, point.bucket_counts, strict=False):
                total += count
                yield of("_bucket", total, "HISTOGRAM", le=bound)
            yield of("_count", point.count, "HISTOGRAM")
            if point.HasField("sum"):
                yield of("_sum", point.sum, "HISTOGRAM")
        case "summary":
            for quantile in point.quantile_values:
                yield of("", quantile.value, "SUMMARY", quantile=_bound(quantile.quantile))
            yield of("_count", point.count, "SUMMARY")
            yield of("_sum", point.sum, "SUMMARY")


def _bound(value: float) -> str:
    """As Prometheus writes numbers in labels: `0.5`, `10`, `+Inf`."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _number(point: Any) -> float:
    return float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)


def reasons(refused: Counter[str]) -> str:
    """Refusals as one sentence."""
    return "; ".join(f"{count} x {reason}" for reason, count in sorted(refused.items()))
