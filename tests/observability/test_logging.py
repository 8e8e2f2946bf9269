"""Our lines and a library's have one shape; secrets and local variables never show."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from streams.runtime.logging import configure


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    configure("info", as_json=True, stream=stream)
    return stream


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_ours_and_a_library_s_have_one_shape(out: io.StringIO) -> None:
    structlog.contextvars.bind_contextvars(agent="ads-windows")
    structlog.stdlib.get_logger("headrace.lane").info("batch stored", rows=7)
    logging.getLogger("faust.worker").warning("slow %s", "loop", extra={"rows": 7})
    ours, theirs = lines(out)
    assert ours.keys() == theirs.keys()
    assert (ours["event"], ours["level"], ours["logger"]) == (
        "batch stored",
        "info",
        "headrace.lane",
    )
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "slow loop",
        "warning",
        "faust.worker",
    )
    assert ours["agent"] == theirs["agent"] == "ads-windows"
    assert ours["timestamp"].endswith("Z")


def test_below_the_level_nothing_is_printed(out: io.StringIO) -> None:
    structlog.stdlib.get_logger("x").debug("no")
    logging.getLogger("y").debug("no")
    assert out.getvalue() == ""


def test_an_exception_has_frames_and_no_local_variables(out: io.StringIO) -> None:
    card_number = "4111-1111"
    try:
        raise LookupError(f"no account for {len(card_number)} digits")
    except LookupError:
        structlog.stdlib.get_logger("x").exception("fold failed")
        logging.getLogger("y").exception("fold failed")
    for line in lines(out):
        (cause,) = line["exception"]
        assert cause["exc_type"] == "LookupError"
        assert cause["frames"][0]["name"] == "test_an_exception_has_frames_and_no_local_variables"
    assert card_number not in out.getvalue()


@pytest.mark.parametrize("name", ["password", "db_password", "Authorization", "access_token"])
def test_secret_fields_are_never_printed(out: io.StringIO, name: str) -> None:
    structlog.stdlib.get_logger("x").info("connected", **{name: "hunter2"})
    logging.getLogger("y").info("connected", extra={name: "hunter2"})
    assert "hunter2" not in out.getvalue()
    assert [line[name] for line in lines(out)] == ["***", "***"]


def test_inside_a_span_a_line_has_its_trace(out: io.StringIO) -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("t").start_as_current_span("s") as span:
        structlog.stdlib.get_logger("x").info("in")
    structlog.stdlib.get_logger("x").info("out")
    inside, outside = lines(out)
    assert inside["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert "trace_id" not in outside


def test_any_value_can_be_logged(out: io.StringIO) -> None:
    structlog.stdlib.get_logger("x").info("odd", at={1: object}, n=2**70, raw=b"\xff")
    (line,) = lines(out)
    assert line["event"] == "odd"


def test_configuring_twice_prints_once(out: io.StringIO) -> None:
    configure("info", as_json=True, stream=out)
    structlog.stdlib.get_logger("x").info("once")
    assert len(lines(out)) == 1


def test_people_get_text() -> None:
    stream = io.StringIO()
    configure("info", as_json=False, stream=stream)
    structlog.stdlib.get_logger("x").info("batch stored", rows=7)
    assert "batch stored" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configure("loud")
