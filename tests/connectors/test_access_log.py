"""Access logs in the combined format."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from connectors.access_log import parse

LINE = (
    'host.example - frank [22/Apr/2009:18:52:51 +1200] "GET /adclick.php?c=LME2&x=1 HTTP/1.1" '
    '302 378 "http://a/b" "Mozilla/5.0 (Macintosh; U)" "-"'
)


def test_a_line() -> None:
    (row,), bad = (found := parse(LINE))[0].to_dicts(), found[1]
    assert bad.is_empty()
    assert row == {
        "line": 1,
        "host": "host.example",
        "time": datetime(2009, 4, 22, 6, 52, 51, tzinfo=UTC),
        "method": "GET",
        "path": "/adclick.php",
        "query": "c=LME2&x=1",
        "status": 302,
        "bytes": 378,
        "referer": "http://a/b",
        "agent": "Mozilla/5.0 (Macintosh; U)",
    }


def test_what_is_not_there_is_null() -> None:
    line = 'h - - [01/Jan/2020:00:00:00 +0000] "HEAD / HTTP/2.0" 304 - "-" "-"'
    (row,) = parse(line)[0].to_dicts()
    assert (row["query"], row["bytes"], row["referer"], row["agent"]) == (None, None, None, None)


def test_every_line_is_a_request_or_told_with_its_number() -> None:
    bad = ["garbage", LINE.replace("22/Apr", "32/Apr"), LINE.replace("GET /adclick", "\\x16\\x03")]
    good, told = parse("\n".join([LINE, bad[0], "", bad[1], LINE, bad[2]]))
    assert good["line"].to_list() == [1, 5]
    assert told.rows() == [(2, bad[0]), (4, bad[1]), (6, bad[2])]


@given(
    st.text(st.characters(codec="ascii", exclude_characters='"\\', min_codepoint=32), min_size=2)
)
def test_an_agent_with_quotes_in_it_is_one_field(agent: str) -> None:
    (row,) = parse(LINE.replace("Mozilla/5.0 (Macintosh; U)", f'{agent}\\"x\\\\'))[0].to_dicts()
    assert row["agent"] == f'{agent}\\"x\\\\'


def test_no_lines_are_no_rows() -> None:
    good, bad = parse("")
    assert (good.height, bad.height) == (0, 0)
