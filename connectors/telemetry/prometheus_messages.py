"""The protobuf messages of Prometheus' remote write 1.0 and remote read.

Declared here field by field, since no package carries them: `prompb/types.proto` and
`prompb/remote.proto` of Prometheus 2, less what is not read (exemplars, native histograms, which
unknown fields carry along).
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto
_SCALAR = {
    "double": _F.TYPE_DOUBLE, "int64": _F.TYPE_INT64, "string": _F.TYPE_STRING,
    "enum": _F.TYPE_INT32, "uint64": _F.TYPE_UINT64,
}  # fmt: skip
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Label": {"name": (1, "string"), "value": (2, "string")},
    "Sample": {"value": (1, "double"), "timestamp": (2, "int64")},
    "TimeSeries": {"labels": (1, "*Label"), "samples": (2, "*Sample")},
    "MetricMetadata": {
        "type": (1, "enum"), "metric_family_name": (2, "string"), "help": (4, "string"),
        "unit": (5, "string"),
    },
    "WriteRequest": {"timeseries": (1, "*TimeSeries"), "metadata": (3, "*MetricMetadata")},
    "LabelMatcher": {"type": (1, "enum"), "name": (2, "string"), "value": (3, "string")},
    "ReadHints": {
        "step_ms": (1, "int64"), "func": (2, "string"), "start_ms": (3, "int64"),
        "end_ms": (4, "int64"),
    },
    "Query": {
        "start_timestamp_ms": (1, "int64"), "end_timestamp_ms": (2, "int64"),
        "matchers": (3, "*LabelMatcher"), "hints": (4, "ReadHints"),
    },
    "ReadRequest": {"queries": (1, "*Query"), "accepted_response_types": (2, "*enum")},
    "QueryResult": {"timeseries": (1, "*TimeSeries")},
    "ReadResponse": {"results": (1, "*QueryResult")},
}  # fmt: skip
METADATA_KINDS = {1: "COUNTER", 2: "GAUGE", 3: "HISTOGRAM", 4: "HISTOGRAM", 5: "SUMMARY"}
MATCHERS = ("=", "!=", "=~", "!~")


def _built() -> dict[str, Any]:
    package = "headrace.prometheus"
    file = descriptor_pb2.FileDescriptorProto(
        name="headrace/prometheus.proto", package=package, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, written) in fields.items():
            kind = written.removeprefix("*")
            label = _F.LABEL_REPEATED if kind != written else _F.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if kind in _SCALAR:
                field.type = _SCALAR[kind]
            else:
                field.type, field.type_name = _F.TYPE_MESSAGE, f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _built()
WriteRequest: Any = _CLASSES["WriteRequest"]
ReadRequest: Any = _CLASSES["ReadRequest"]
ReadResponse: Any = _CLASSES["ReadResponse"]
