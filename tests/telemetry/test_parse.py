"""Parsers: what the specifications and real services write, and everything else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connectors.datasets import DATASETS, Unavailable, fetch
from connectors.encode import Encoder
from connectors.telemetry import parse as parsing
from connectors.telemetry.line import LEVELS, UNKNOWN
from connectors.telemetry.parse import FORMATS, Format, Origin, Parsed, parse
from connectors.telemetry.parse.said import epoch, rfc3339
from schemas.telemetry.events import LOG_LINE, LOGS
from streams.runtime.settings import home

NOW_NS = int(datetime(2024, 5, 8, 12, tzinfo=UTC).timestamp()) * 10**9


def ns(*moment: int, fraction: int = 0) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp()) * 10**9 + fraction  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # RFC 5424, section 6.5, the examples
        (
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - "
            "\ufeff'su root' failed for lonvick on /dev/pts/8",
            Parsed(
                "'su root' failed for lonvick on /dev/pts/8",
                ns(2003, 10, 11, 22, 14, 15, fraction=3_000_000),
                "FATAL",
                "su",
                "mymachine.example.com",
                labels={"facility": "auth", "msgid": "ID47"},
            ),
        ),
        (
            "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time "
            "to make the do-nuts.",
            Parsed(
                "%% It's time to make the do-nuts.",
                ns(2003, 8, 24, 12, 14, 15, fraction=3_000),
                "INFO",
                "myproc",
                "192.0.2.1",
                labels={"facility": "local4", "procid": "8710"},
            ),
        ),
        (
            '<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 [exampleSDID@32473 iut="3" '
            'eventSource="Appl\\"ication" eventID="1011"][examplePriority@32473 class="high"]',
            Parsed(
                "",
                ns(2003, 10, 11, 22, 14, 15, fraction=3_000_000),
                "INFO",
                "evntslog",
                "host",
                labels={
                    "facility": "local4",
                    "msgid": "ID47",
                    "exampleSDID@32473.iut": "3",
                    "exampleSDID@32473.eventSource": 'Appl"ication',
                    "exampleSDID@32473.eventID": "1011",
                    "examplePriority@32473.class": "high",
                },
            ),
        ),
        # RFC 3164, section 5.4
        (
            "<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!",
            Parsed(
                "Use the BFG!", ns(2024, 2, 5, 17, 32, 18), "INFO", host="10.0.0.99",
                labels={"facility": "user"},
            ),
        ),
        (
            "<34>Oct 11 22:14:15 mymachine su[230]: 'su root' failed",
            Parsed(
                "'su root' failed", ns(2023, 10, 11, 22, 14, 15), "FATAL", "su", "mymachine",
                labels={"facility": "auth", "procid": "230"},
            ),
        ),
    ],
)  # fmt: skip
def test_syslog(text: str, expected: Parsed) -> None:
    assert parse(text, "syslog", NOW_NS) == expected
    assert parse(text, "auto", NOW_NS) == expected


def test_access() -> None:
    """Apache's documentation, mod_log_config, and nginx with a quote in a header."""
    combined = (
        '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif?x=1 HTTP/1.0" 200 2326 '
        '"http://www.example.com/start.html" "Mozilla/4.08 \\"[en]\\""'
    )
    found = parse(combined, "auto", NOW_NS)
    assert found.time_ns == ns(2000, 10, 10, 20, 55, 36)
    assert (found.level, found.body) == ("INFO", "GET /apache_pb.gif?x=1 HTTP/1.0 200")
    assert found.labels == {
        "client": "127.0.0.1", "user": "frank", "method": "GET", "path": "/apache_pb.gif",
        "query": "x=1", "protocol": "HTTP/1.0", "status": "200", "bytes": "2326",
        "referer": "http://www.example.com/start.html", "agent": 'Mozilla/4.08 \\"[en]\\"',
    }  # fmt: skip
    common = '::1 - - [10/Oct/2000:13:55:36 +0000] "\\x16\\x03" 502 -'
    found = parse(common, "access", NOW_NS)
    assert (found.level, found.labels) == ("ERROR", {"client": "::1", "status": "502"})


def test_json_takes_what_has_a_meaning_and_keeps_the_rest() -> None:
    text = (
        '{"ts":"2024-05-07T12:00:00.25+02:00","level":"warning","msg":"slow","service":"pay",'
        '"trace_id":"5B8AA5A2D2C872E8321CF37308D69DF2","http":{"status":503,"path":"/x"},"n":null,'
        '"tags":["a","b"]}'
    )
    found = parse(text, "auto", NOW_NS)
    assert found == Parsed(
        "slow", ns(2024, 5, 7, 10, fraction=250_000_000), "WARN", "pay",
        trace_id="5b8aa5a2d2c872e8321cf37308d69df2",
        labels={"http.status": "503", "http.path": "/x", "tags": '["a","b"]'},
    )  # fmt: skip
    assert parse('{"level":50,"time":1715076000250,"msg":"x"}', "json", NOW_NS) == Parsed(
        "x", ns(2024, 5, 7, 10, fraction=250_000_000), "ERROR"
    )


def test_logfmt() -> None:
    text = 'ts=2024-05-07T10:56:52Z level=error caller=main.go:7 msg="it \\"broke\\"" retry err='
    found = parse(text, "auto", NOW_NS)
    assert (found.body, found.level) == ('it "broke"', "ERROR")
    assert found.labels == {"caller": "main.go:7", "retry": "true"}
    cut = parse('level=info msg="half a sent', "logfmt", NOW_NS)
    assert (cut.body, cut.level) == ("half a sent", "INFO")


def test_leading() -> None:
    for text, body in (
        ("[2024-05-07 10:55:53,434] INFO [Log] Wrote", "INFO [Log] Wrote"),
        ("2024-05-07T10:55:53.434Z [INFO]  expiration: revoked", "[INFO]  expiration: revoked"),
        ('I0507 10:55:53.434000       1 evictions.go:160] "Evicted"', '"Evicted"'),
    ):
        found = parse(text, "auto", NOW_NS)
        at = ns(2024, 5, 7, 10, 55, 53, fraction=434_000_000)
        assert (found.body, found.level, found.time_ns) == (body, "INFO", at)


@pytest.mark.parametrize(
    ("format", "text", "reason"),
    [
        ("json", '{"a":', "not JSON"),
        ("json", "[1]", "not an object"),
        ("logfmt", "just words", "no key=value"),
        ("access", "GET / 200", "not an access log line"),
        ("access", '1 - - [31/Feb/2000:13:55:36 +0000] "GET / HTTP/1.1" 200 1', "not a time"),
        ("syslog", "<192>1 - h a - - - x", "neither"),
        ("leading", "2024-13-01 00:00:00 x", "not a time"),
    ],
)
def test_a_malformed_line_is_kept_with_the_reason(format: Format, text: str, reason: str) -> None:
    found = parse(text, format, NOW_NS)
    assert found.body == text
    assert reason in found.labels["parse_error"]


ENCODER = Encoder(LOGS, {LOG_LINE.fullname: 1})
LONG = '{"service":"' + "é" * 999 + '","host":"' + "\U0001f4a9" * 999 + '","msg":"x"}'
pieces = st.sampled_from(
    ["<34>1 ", "<13>Feb  5 17:32:18 ", "- ", "[a b=\"", "\\", '"', "]", "{", '{"level":', "[", "=",
     " ", "2024-05-07T10:55:53Z", "29 Feb", "\x00", "\ud800", "é", "level=", "I0507 10:55:53.4 ",
     "9999-12-31T23:59:59+00:01", "0001-01-01T00:00:00+23:59", "1e400", "99999999999999999999",
     ' "GET / HTTP/1.1" 200 1', "[10/Oct/2000:13:55:36 +9999]"]
)  # fmt: skip


@given(
    st.text() | st.lists(pieces | st.text(max_size=5), max_size=12).map("".join),
    st.sampled_from(FORMATS),
)
@example('{"time":true,"level":{},"msg":1}', "json")
@example("9999-12-31T23:59:59-23:59 x", "leading")
@example('{"time":1e400}', "json")
@example(LONG, "json")
def test_no_line_raises_and_none_is_lost(text: str, format: Format) -> None:
    found = parse(text, format, NOW_NS)
    assert found.level in (*LEVELS, UNKNOWN)
    made = parsing.line(text, Origin("", format=format), NOW_NS)
    ENCODER.encode("LogLine", {**made.row(), "line_id": "l"})
    assert 0 <= made.time_ns < 7_258_118_400 * 10**9


@given(st.datetimes(datetime(1970, 1, 2), datetime(2199, 12, 31)), st.integers(0, 999_999_999))
def test_a_time_is_read_back(moment: datetime, fraction: int) -> None:
    moment = moment.replace(microsecond=0)
    text = f"{moment.isoformat()}.{fraction:09}Z"
    assert rfc3339(text) == int(moment.replace(tzinfo=UTC).timestamp()) * 10**9 + fraction


@pytest.mark.parametrize("number", ["1715076000", "1715076000000", 1715076000000000, 1715076000.0])
def test_the_unit_of_a_number_is_what_makes_it_a_time_of_ours(number: object) -> None:
    assert epoch(number) == ns(2024, 5, 7, 10)


def service_logs() -> dict[str, list[str]]:
    """Lines of real services, by service."""
    try:
        files = fetch(DATASETS["service-logs"], home() / "datasets")
    except Unavailable as error:
        pytest.skip(str(error))
    return {Path(n).stem: c.decode(errors="replace").splitlines() for n, c in files.items()}


def test_real_lines_are_understood() -> None:
    """61,301 lines of ten services: nearly all have a time and a level that the parser finds; the
    rest are continuations and bare messages.
    """
    lines = service_logs()
    assert sum(map(len, lines.values())) > 61_000
    for service, texts in lines.items():
        found = [parse(text, "auto", NOW_NS) for text in texts[:2_000]]
        timed = sum(one.time_ns is not None and one.level != UNKNOWN for one in found)
        assert timed / len(found) >= {"journald": 0.73, "calico": 0.99}.get(service, 0.994), service
        assert not any("parse_error" in one.labels for one in found)
