"""The ways in, with the messages that real exporters build."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from typing import Any

import pytest
import requests
from google.protobuf import json_format
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from connectors.producer import Undelivered
from connectors.telemetry.encoding import snappy
from connectors.telemetry.otlp.metrics import metric_name
from connectors.telemetry.prometheus_messages import WriteRequest
from connectors.telemetry.remote_write import STALE
from tests.api.conftest import MemoryProducer
from tests.telemetry.conftest import SERIES_MAX

URL = "http://test/v1/telemetry"
NOW_NS = 1_767_225_600_000_000_000
RESOURCE = Resource(
    {"service.name": "pay", "service.namespace": "shop", "service.instance.id": "p1", "zone": "a"}
)
TRACE, SPAN = "5b8aa5a2d2c872e8321cf37308d69df2", "051581bf3cb55c13"


def log_record(body: Any = "it broke", **fields: Any) -> LogRecord:
    made = {
        "timestamp": NOW_NS + 1_500_007, "severity_number": SeverityNumber.ERROR,
        "attributes": {"code": 7, "tags": ["a", "b"], "ok": True},
    }  # fmt: skip
    return LogRecord(body=body, **{**made, **fields})


@pytest.mark.parametrize("compression", list(Compression))
def test_the_sdks_log_exporter(
    session: requests.Session, producer: MemoryProducer, compression: Compression
) -> None:
    exporter = OTLPLogExporter(f"{URL}/otlp/v1/logs", compression=compression, session=session)
    provider = LoggerProvider(RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    provider.get_logger("my.scope").emit(log_record(trace_id=int(TRACE, 16), span_id=int(SPAN, 16)))
    provider.shutdown()
    ((topic, name, row),) = producer.sent
    assert (topic, name) == ("telemetry.logs", "LogLine")
    assert row.pop("line_id")
    labels = json.loads(row.pop("labels"))
    assert row == {
        "stream": "shop/pay/p1", "service": "shop/pay", "level": "ERROR",
        "event_time": NOW_NS // 10**6 + 1, "nanos": 500_007, "body": "it broke",
        "trace_id": TRACE, "span_id": SPAN, "weight": 1,
    }  # fmt: skip
    assert {k: labels[k] for k in ("code", "ok", "scope", "tags", "zone")} == {
        "code": "7", "ok": "true", "scope": "my.scope", "tags": '["a","b"]', "zone": "a"
    }  # fmt: skip


def request_of(*bodies: str) -> ExportLogsServiceRequest:
    """A request as the SDK encodes it, with ids."""
    from opentelemetry.sdk._logs import ReadableLogRecord

    return encode_logs(
        [
            ReadableLogRecord(
                log_record(body, trace_id=int(TRACE, 16), span_id=int(SPAN, 16)), RESOURCE
            )
            for body in bodies
        ]
    )


def as_otlp_json(message: Any) -> bytes:
    """OTLP's JSON of a message: protobuf's, but with ids in hexadecimal and enums as numbers."""
    found = json_format.MessageToDict(message, use_integers_for_enums=True)
    for resource in found["resourceLogs"]:
        for scope in resource["scopeLogs"]:
            for record in scope["logRecords"]:
                record |= {"traceId": TRACE, "spanId": SPAN.upper()}
    return json.dumps(found).encode()


def post(session: requests.Session, path: str, body: bytes, kind: str, **headers: str) -> Any:
    return session.post(URL + path, data=body, headers={"Content-Type": kind, **headers})


def test_json_says_what_protobuf_says(session: requests.Session, producer: MemoryProducer) -> None:
    message = request_of("a", "b")
    one = post(session, "/otlp/v1/logs", message.SerializeToString(), "application/x-protobuf")
    two = post(session, "/otlp/v1/logs", as_otlp_json(message), "application/json")
    assert (one.status_code, one.content) == (200, b"")
    assert two.json() == {}
    assert one.headers["Headrace-Position"].startswith("telemetry.logs/")
    rows = [row for _, _, row in producer.sent]
    assert rows[:2] == rows[2:]
    assert rows[0]["trace_id"] == TRACE


def test_a_request_sent_again_has_the_same_ids(
    session: requests.Session, producer: MemoryProducer
) -> None:
    message = request_of("same", "same").SerializeToString()
    for _ in range(2):
        post(session, "/otlp/v1/logs", message, "application/x-protobuf")
    ids = [row["line_id"] for _, _, row in producer.sent]
    assert ids[:2] == ids[2:]
    assert len(set(ids)) == 2


def test_rules_drop_and_say_so(session: requests.Session, producer: MemoryProducer) -> None:
    text = b"level=debug msg=a\nlevel=error msg=b\n\nlevel=debug msg=c\n"
    answer = post(session, "/lines?service=edge&format=logfmt", text, "text/plain")
    assert (answer.status_code, answer.headers["Headrace-Dropped"]) == (204, "2")
    assert [row["body"] for _, _, row in producer.sent] == ["b"]
    account = session.get(f"{URL}/intake").json()
    assert account == {"accepted": 1, "dropped": {"debug": 2}, "refused": {}}


def test_a_record_that_cannot_be_taken_is_a_partial_success(session: requests.Session) -> None:
    message = request_of("a", "b")
    message.resource_logs[0].scope_logs[0].log_records[1].time_unix_nano = 2**63
    answer = post(session, "/otlp/v1/logs", message.SerializeToString(), "application/x-protobuf")
    told = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert (told.rejected_log_records, told.error_message) == (1, "1 x time out of range")


def test_the_sdks_metric_exporter(session: requests.Session, producer: MemoryProducer) -> None:
    exporter = OTLPMetricExporter(f"{URL}/otlp/v1/metrics", session=session)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], RESOURCE)
    meter = provider.get_meter("m")
    meter.create_counter("http.requests").add(3, {"http.code": 200})
    meter.create_up_down_counter("queue", unit="1").add(-2)
    meter.create_histogram(
        "latency", unit="s", explicit_bucket_boundaries_advisory=[0.5, 1]
    ).record(0.7)
    provider.force_flush()
    provider.shutdown()
    series = {r["series_id"]: r for _, name, r in producer.sent if name == "SeriesDeclared"}
    first = {}
    for _, name, row in producer.sent:
        if name == "Sampled":
            said = series[row["series_id"]]
            key = (said["name"], json.loads(said["labels"]).get("le"), said["kind"])
            first.setdefault(key, row["value"])
    target = {"job": "shop/pay", "instance": "p1"}
    assert all(target.items() <= json.loads(s["labels"]).items() for s in series.values())
    assert first == {
        ("http_requests_total", None, "COUNTER"): 3,
        ("queue", None, "GAUGE"): -2,
        ("latency_seconds_bucket", "0.5", "HISTOGRAM"): 0,
        ("latency_seconds_bucket", "1", "HISTOGRAM"): 1,
        ("latency_seconds_bucket", "+Inf", "HISTOGRAM"): 1,
        ("latency_seconds_count", None, "HISTOGRAM"): 1,
        ("latency_seconds_sum", None, "HISTOGRAM"): 0.7,
    }


def test_new_series_over_the_limit_are_a_partial_success(
    session: requests.Session, producer: MemoryProducer
) -> None:
    exporter = OTLPMetricExporter(f"{URL}/otlp/v1/metrics", session=session)
    message = ExportMetricsServiceRequest()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    for n in range(SERIES_MAX + 3):
        point = metric.gauge.data_points.add(time_unix_nano=NOW_NS, as_double=1)
        point.attributes.add(key="user").value.string_value = str(n)
    body = message.SerializeToString()
    answer = post(session, "/otlp/v1/metrics", body, "application/x-protobuf")
    told = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert told.rejected_data_points == 3
    assert told.error_message == "3 x over the limit of series of m"
    assert sum(name == "Sampled" for _, name, _ in producer.sent) == SERIES_MAX
    assert exporter.force_flush() and MetricExportResult.SUCCESS


def test_deltas_are_refused_with_the_reason(session: requests.Session) -> None:
    message = ExportMetricsServiceRequest()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.sum.aggregation_temporality = 1
    metric.sum.data_points.add(time_unix_nano=NOW_NS, as_int=1)
    answer = post(
        session, "/otlp/v1/metrics", message.SerializeToString(), "application/x-protobuf"
    )
    told = ExportMetricsServiceResponse.FromString(answer.content).partial_success
    assert (told.rejected_data_points, told.error_message) == (1, "1 x not cumulative")


def written(*values: float, **labels: str) -> bytes:
    request = WriteRequest()
    series = request.timeseries.add()
    for name, value in sorted({"__name__": "up", **labels}.items()):
        series.labels.add(name=name, value=value)
    for n, value in enumerate(values):
        series.samples.add(value=value, timestamp=NOW_NS // 10**6 + n)
    return request.SerializeToString()


JSON, TEXT = {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}
V2 = {"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}
PRW = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}


def test_remote_write(session: requests.Session, producer: MemoryProducer) -> None:
    body = snappy(written(1.0, STALE, float("nan"), job="x"))
    answer = post(session, "/prometheus/write", body, "application/x-protobuf", **PRW)
    assert (answer.status_code, answer.content) == (204, b"")
    assert [name for _, name, _ in producer.sent] == ["SeriesDeclared", "Sampled", "Sampled"]
    assert producer.sent[0][2]["labels"] == '{"job":"x"}'
    assert [row["value"] for _, _, row in producer.sent[1:]] == [1.0, None]


def test_remote_write_takes_what_it_can_and_says_what_not(
    session: requests.Session, producer: MemoryProducer
) -> None:
    request = WriteRequest.FromString(written(1.0))
    nameless = request.timeseries.add()
    nameless.samples.add(value=1, timestamp=1)
    body = snappy(request.SerializeToString())
    answer = post(session, "/prometheus/write", body, "application/x-protobuf", **PRW)
    assert answer.status_code == 400
    assert "taken: 1; refused: 1 x no metric name" in answer.json()["detail"]
    assert len(producer.sent) == 2


def test_what_was_not_confirmed_is_declared_again(
    session: requests.Session, producer: MemoryProducer
) -> None:
    body = snappy(written(1.0))
    producer.fails_with = Undelivered("no answer")
    answer = post(session, "/prometheus/write", body, "application/x-protobuf", **PRW)
    assert answer.status_code == 503
    producer.fails_with = None
    post(session, "/prometheus/write", body, "application/x-protobuf", **PRW)
    assert [name for _, name, _ in producer.sent] == ["SeriesDeclared", "Sampled"]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/otlp/v1/logs", b"\xff\xff\xff", {}, 400),
        ("/otlp/v1/logs", b"{", JSON, 400),
        ("/otlp/v1/logs", b'{"resourceLogs":[{"a":"' + b"[" * 500, JSON, 400),
        ("/otlp/v1/logs", b'{"resourceLogs":7}', JSON, 400),
        ("/otlp/v1/logs", b"[" * 90_000 + b"]" * 90_000, JSON, 400),
        ("/otlp/v1/logs", b'{"a":' * 200 + b"1" + b"}" * 200, JSON, 400),
        ("/otlp/v1/logs", b"", TEXT, 415),
        ("/otlp/v1/logs", b"", {"Content-Encoding": "br"}, 415),
        ("/otlp/v1/metrics", gzip.compress(bytes(50 << 20), 1), {"Content-Encoding": "gzip"}, 413),
        ("/otlp/v1/logs", zlib.compress(bytes(9_000_000)), {"Content-Encoding": "deflate"}, 413),
        ("/otlp/v1/logs", b"\x1f\x8b\x08", {"Content-Encoding": "gzip"}, 400),
        ("/prometheus/write", struct.pack("<I", 2**31 - 1) + b"\x7f", PRW, 413),
        ("/prometheus/write", b"\x03abc", PRW, 400),
        ("/prometheus/write", b"", V2, 415),
        ("/lines?service=a", b"\xff", TEXT, 422),
        ("/lines?service=a", b"x\n" * 20_001, TEXT, 413),
        ("/lines?service=", b"x", TEXT, 422),
        ("/lines?service=a&format=xml", b"x", TEXT, 422),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_whole(
    session: requests.Session, producer: MemoryProducer, path: str, body: bytes,
    headers: dict[str, str], status: int,
) -> None:  # fmt: skip
    headers = {"Content-Type": "application/x-protobuf", **headers}
    answer = session.post(URL + path, data=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert producer.sent == []


def test_other_routes_still_refuse_compressed_bodies(session: requests.Session) -> None:
    answer = session.post(
        "http://test/v1/ads/events", data=gzip.compress(b"{}"),
        headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
    )  # fmt: skip
    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("name", "unit", "monotonic", "expected"),
    [
        ("http.server.duration", "ms", False, "http_server_duration_milliseconds"),
        ("process.cpu.time", "s", True, "process_cpu_time_seconds_total"),
        ("requests_total", "", True, "requests_total"),
        ("2xx", "1", False, "_2xx"),
        ("disk.bytes", "By", False, "disk_bytes"),
    ],
)
def test_names_are_those_of_prometheus(
    name: str, unit: str, monotonic: bool, expected: str
) -> None:
    assert metric_name(name, unit, monotonic=monotonic) == expected
