"""OTLP/HTTP: requests in protobuf or JSON, and the answers in the same.

Source: opentelemetry.io/docs/specs/otlp (1.x). The messages are those of `opentelemetry-proto`.
Ids are hexadecimal in OTLP's JSON, where protobuf's own JSON has Base64.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Literal

import orjson
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from connectors.telemetry.remote_write import BadMessage

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
Wire = Literal["protobuf", "json"]
_IDS = {"traceId", "spanId", "trace_id", "span_id"}
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")

__all__ = ["JSON", "PROTOBUF", "BadMessage", "Wire", "answer", "logs_request", "metrics_request"]


def logs_request(body: bytes, wire: Wire) -> ExportLogsServiceRequest:
    """The request of `/v1/logs`. Raises `BadMessage`."""
    request = ExportLogsServiceRequest()
    _read(request, body, wire)
    return request


def metrics_request(body: bytes, wire: Wire) -> ExportMetricsServiceRequest:
    """The request of `/v1/metrics`. Raises `BadMessage`."""
    request = ExportMetricsServiceRequest()
    _read(request, body, wire)
    return request


def _read(message: Message, body: bytes, wire: Wire) -> None:
    try:
        if wire == "protobuf":
            message.ParseFromString(body)
        else:
            json_format.ParseDict(
                _with_ids(orjson.loads(body)), message, ignore_unknown_fields=True
            )
    except (DecodeError, json_format.ParseError, orjson.JSONDecodeError, ValueError) as error:
        shown = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise BadMessage(f"not an OTLP request: {shown}") from None


def _with_ids(value: Any, depth: int = 0) -> Any:
    """The same JSON with ids in Base64; ids that are not hexadecimal become empty, which is
    OTLP's way to say that there is none.
    """
    if depth > 64:
        raise BadMessage("nested more than 64 deep")
    if isinstance(value, list):
        return [_with_ids(one, depth + 1) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _base64(inner) if key in _IDS else _with_ids(inner, depth + 1)
        for key, inner in value.items()
    }


def _base64(text: Any) -> str:
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        return ""
    return base64.b64encode(bytes.fromhex(text)).decode()


def answer(kind: Literal["logs", "metrics"], wire: Wire, rejected: int, reason: str) -> bytes:
    """The body of a 200: a full success, or a partial one with how many were refused and why."""
    message: Message
    if kind == "logs":
        logs = ExportLogsServiceResponse()
        if rejected or reason:
            logs.partial_success.rejected_log_records = rejected
            logs.partial_success.error_message = reason
        message = logs
    else:
        metrics = ExportMetricsServiceResponse()
        if rejected or reason:
            metrics.partial_success.rejected_data_points = rejected
            metrics.partial_success.error_message = reason
        message = metrics
    if wire == "protobuf":
        return message.SerializeToString()
    return json_format.MessageToJson(message).encode()
