"""Encodings, drop and sampling rules, identities, and the limit on series."""

from __future__ import annotations

import contextlib
import gzip
import resource
import zlib
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.telemetry import rules
from connectors.telemetry.encoding import (
    BadEncoding,
    TooLarge,
    UnknownEncoding,
    decoded,
    snappy,
)
from connectors.telemetry.line import LEVELS, UNKNOWN, Line, identified
from connectors.telemetry.rules import Rule
from connectors.telemetry.series import DECLARE_EVERY_MS, Admission, Sample, Series

CAP = 1_000_000


@given(st.binary(max_size=2_000))
def test_what_is_packed_is_unpacked(body: bytes) -> None:
    halves = gzip.compress(body[:7]) + gzip.compress(body[7:])
    assert decoded(halves, "gzip", CAP) == body
    assert decoded(zlib.compress(body), "Deflate", CAP) == body
    assert decoded(snappy(body), "snappy", CAP) == body
    assert decoded(body, "identity", CAP) == body


@given(st.binary(max_size=300), st.sampled_from(["gzip", "deflate", "snappy"]))
def test_other_bytes_are_refused(body: bytes, encoding: str) -> None:
    with contextlib.suppress(BadEncoding, TooLarge):
        assert len(decoded(body, encoding, CAP)) <= CAP


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "snappy"])
def test_a_bomb_is_refused_without_unpacking_it(encoding: str) -> None:
    """50 MiB of zeros are 50 kB of gzip; what is allocated is bounded by the cap."""
    pack = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "snappy": lambda zeros: bytes(cramjam.snappy.compress_raw(zeros)),
    }
    packed = pack[encoding](bytes(50 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge):
        decoded(packed, encoding, CAP)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_cut_and_unknown_streams() -> None:
    with pytest.raises(BadEncoding, match="cut off"):
        decoded(gzip.compress(b"hello")[:-9], "gzip", CAP)
    with pytest.raises(UnknownEncoding):
        decoded(b"", "br", CAP)


LINE = Line("checkout", 1_700_000_000_000_000_000, "GET /healthz", "DEBUG", "pod-1")
ALL = Rule(name="all", keep_one_of=0)

lines = st.builds(
    Line,
    service=st.sampled_from(["checkout", "edge-1"]),
    time_ns=st.integers(0, 10**18),
    body=st.text(max_size=5),
    level=st.sampled_from((*LEVELS, UNKNOWN)),
    trace_id=st.sampled_from([None, "a" * 32, "b" * 32]),
)


@given(st.lists(lines, max_size=30), st.lists(st.integers(0, 3), max_size=3))
def test_every_line_is_kept_or_counted_and_no_error_is_dropped(
    given_lines: list[Line], one_of: list[int]
) -> None:
    judged = identified(given_lines)
    some = [Rule(name=str(n), keep_one_of=k) for n, k in enumerate(one_of)]
    kept = rules.apply(some, judged)
    assert len(kept.lines) + kept.dropped.total() == len(judged)
    grave = [line for line in judged if line.level in {"ERROR", "FATAL"}]
    assert [line for line in kept.lines if line.level in {"ERROR", "FATAL"}] == grave
    assert rules.apply(some, kept.lines[:0]).lines == []
    again = rules.apply(some, judged)
    assert again.lines == kept.lines


def test_sampling_keeps_traces_whole_and_says_what_a_line_stands_for() -> None:
    spread = identified(
        [replace(LINE, time_ns=n, trace_id=f"{n % 1000 + 1:032x}") for n in range(10_000)]
    )
    kept = rules.apply([Rule(name="s", keep_one_of=10)], spread).lines
    traces = {line.trace_id for line in kept}
    assert len(kept) == 10 * len(traces)
    assert 60 <= len(traces) <= 140
    assert {line.weight for line in kept} == {10}


def test_the_first_rule_that_matches_decides(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[rule]]\nname="keep"\nservices=["check*"]\nkeep_one_of=1\n'
        '[[rule]]\nname="health"\ncontains="healthz"\nlevels=["DEBUG"]\nkeep_one_of=0\n'
    )
    read = rules.read(file)
    other = replace(LINE, service="edge")
    kept = rules.apply(read, identified([LINE, other, replace(other, level="INFO")]))
    assert [line.service for line in kept.lines] == ["checkout", "edge"]
    assert kept.dropped == {"health": 1}


@pytest.mark.parametrize(
    "text", ["[[rule]]", "x=1", "[[rule]]\nname='a'\nkeep_one_of=-1", "\x00",
             "[[rule]]\nname='a'\nkeep_one_of=1\nlevels=['LOUD']"]
)  # fmt: skip
def test_bad_rules_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(rules.BadRules, match=r"rules\.toml"):
        rules.read(file)


@given(st.lists(lines, max_size=20))
def test_a_request_sent_again_has_the_same_ids(given_lines: list[Line]) -> None:
    once = identified([*given_lines, *given_lines])
    assert once == identified([*given_lines, *given_lines])
    assert len({line.line_id for line in once}) == len(once)


def sample(n: int, at: int = 1, metric: str = "m") -> Sample:
    return Sample(Series(metric, (("id", str(n)),)), at, 1.0)


def test_new_series_over_the_limit_are_refused_and_known_ones_go_on() -> None:
    admission = Admission(series_max=3)
    first = admission.admit([sample(n) for n in range(5)], 1.0)
    assert (first.samples, first.refused) == (3, {"m": 2})
    assert [name for name, _ in first.rows] == ["SeriesDeclared", "Sampled"] * 3
    then = admission.admit([sample(0, 2), sample(9, 2), sample(9, 2, metric="other")], 1.0)
    assert (then.samples, then.refused) == (2, {"m": 1})
    later = admission.admit([sample(0, 1 + DECLARE_EVERY_MS)], 1.0)
    assert [name for name, _ in later.rows] == ["SeriesDeclared", "Sampled"]
    admission.forget(before_s=2.0)
    assert admission.admit([sample(9, 3)], 3.0).samples == 1


def test_another_process_learns_what_is_known() -> None:
    one, two = Admission(series_max=2), Admission(series_max=2)
    declared: dict[str, dict[str, int]] = {"m": {}}
    for name, row in one.admit([sample(0), sample(1)], 1.0).rows:
        if name == "SeriesDeclared":
            declared[row["name"]][row["series_id"]] = row["event_time"]
    two.learn(declared, 1.0)
    assert two.admit([sample(2)], 1.0).refused == {"m": 1}
    assert [name for name, _ in two.admit([sample(1)], 1.0).rows] == ["Sampled"]


def test_what_may_not_have_reached_the_log_is_declared_again() -> None:
    admission = Admission()
    lost = admission.admit([sample(0)], 1.0)
    admission.withdraw(lost)
    assert admission.admit([sample(0)], 2.0).rows == lost.rows


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4))
def test_a_series_is_its_name_and_labels(labels: dict[str, str]) -> None:
    one = Series("m", tuple(labels.items()))
    other = Series("m", tuple(reversed(labels.items())), kind="GAUGE")
    assert one.series_id == other.series_id
    assert one.series_id != Series("m", (*labels.items(), ("more", "x"))).series_id
