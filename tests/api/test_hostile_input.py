"""Input that breaks parsers, encoders or workers further in. Every case is a 4xx, never a 500,
and nothing of it reaches the log.
"""

from __future__ import annotations

import json
import zlib

import httpx
import pytest

from tests.api.conftest import CLICK, MemoryProducer, problem_of

JSON = {"Content-Type": "application/json"}


def click_with(fragment: str) -> bytes:
    """A click whose cost is the given JSON text."""
    text = json.dumps({**CLICK, "cost_micros": 0}).replace('"cost_micros": 0', "@")
    return text.replace("@", fragment).encode("utf-8", "surrogatepass")


BODIES = {
    "nan": click_with('"cost_micros": NaN'),
    "infinity": click_with('"cost_micros": -Infinity'),
    "double_overflow": click_with('"cost_micros": 1e400'),
    "duplicate_key": click_with('"cost_micros": 1, "cost_micros": 100'),
    "5000_digits": click_with('"cost_micros": ' + "9" * 5_000),
    "65_bits": click_with('"cost_micros": 9223372036854775808'),
    "float_for_integer": click_with('"cost_micros": 1.0'),
    "float_money": click_with('"cost_micros": 0.1'),
    "boolean_for_integer": click_with('"cost_micros": true'),
    "text_for_integer": click_with('"cost_micros": "1"'),
    "nested_100000_open": b"[" * 100_000,
    "nested_100000": b"[" * 100_000 + b"]" * 100_000,
    "nested_objects": click_with('"cost_micros": ' + '{"a":' * 10_000 + "1" + "}" * 10_000),
    "lone_surrogate": click_with('"user_agent": "\\ud83d"'),
    "lone_low_surrogate": click_with('"user_agent": "\\uDE00"'),
    "lone_surrogate_key": click_with('"\\ud83d": 1'),
    "raw_surrogate": click_with('"user_agent": "\ud83d"'),
    "control_character_in_id": click_with('"ad_id": "a\\u0000b"').replace(
        b'"ad_id": "banner", ', b""
    ),
    "newline_in_text": click_with('"user_agent": "a\\nforged log line"'),
    "c1_control_character": click_with('"user_agent": "a\\u0085b"'),
    "unknown_field": click_with('"cost_micro": 1'),
    "empty_id": click_with('"click_id": ""').replace(b'"click_id": "clk-1", ', b""),
    "long_id": json.dumps({**CLICK, "ad_id": "x" * 129}).encode(),
    "long_text": json.dumps({**CLICK, "user_agent": "x" * 1_025}).encode(),
    "wrong_type": json.dumps({**CLICK, "type": "AdBought"}).encode(),
    "no_type": json.dumps({k: v for k, v in CLICK.items() if k != "type"}).encode(),
    "no_user": json.dumps({k: v for k, v in CLICK.items() if k != "user_id"}).encode(),
    "country_in_lower_case": json.dumps({**CLICK, "country": "nl"}).encode(),
    "not_utf8": click_with('"user_agent": "x"').replace(b'"x"', b'"\xff"'),
    "utf16": json.dumps(CLICK).encode("utf-16"),
    "byte_order_mark": b"\xef\xbb\xbf" + json.dumps(CLICK).encode(),
    "trailing_text": json.dumps(CLICK).encode() + b"{}",
    "single_quotes": b"{'type': 'AdClicked'}",
    "array": b"[]",
    "null": b"null",
    "text": b'"AdClicked"',
    "empty": b"",
}


@pytest.mark.parametrize("name", BODIES)
async def test_body_is_refused_with_422(
    client: httpx.AsyncClient, producer: MemoryProducer, name: str
) -> None:
    answer = await client.post("/v1/ads/events", content=BODIES[name], headers=JSON)

    problem_of(answer, 422)
    assert producer.sent == []


@pytest.mark.parametrize("name", BODIES)
async def test_body_inside_a_batch_is_refused_with_422(
    client: httpx.AsyncClient, producer: MemoryProducer, name: str
) -> None:
    body = b'{"events": [' + json.dumps(CLICK).encode() + b"," + BODIES[name] + b"]}"

    problem_of(await client.post("/v1/ads/events:batch", content=body, headers=JSON), 422)
    assert producer.sent == []


@pytest.mark.parametrize(
    "value",
    [
        "2024-01-01T00:00:00",  # naive: another instant under TZ=Asia/Shanghai
        "2024-01-01",
        "1704067200",  # seconds as text
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:01Z",
        "2016-12-31T23:59:60Z",  # a leap second: no instant on a POSIX scale
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "2024-01-01T00:00:00+24:00",
        "٢٠٢٤-01-01T00:00:00Z",
        253_402_300_800_000,
        10**15,  # microseconds sent as milliseconds
        -62_135_596_800_001,
        2**62,
        -1,
        1_704_067_200.5,
        True,
        None,
        {},
    ],
    ids=ascii,
)
async def test_time_is_refused_with_422(
    client: httpx.AsyncClient, producer: MemoryProducer, value: object
) -> None:
    answer = await client.post("/v1/ads/events", json={**CLICK, "event_time": value})

    problem_of(answer, 422)
    assert producer.sent == []


async def test_text_outside_of_ascii_passes_unchanged(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    body = click_with('"user_agent": "\\ud83d\\ude00 é 漢"')

    answer = await client.post("/v1/ads/events", content=body, headers=JSON)

    assert answer.status_code == 202, answer.text
    assert producer.sent[0][2]["user_agent"] == "😀 é 漢"


async def test_the_answer_never_echoes_the_input(client: httpx.AsyncClient) -> None:
    secret = "s3cr3t-value"

    answer = await client.post("/v1/ads/events", json={**CLICK, "cost_micros": secret})

    problem_of(answer, 422)
    assert secret not in answer.text


async def test_a_batch_of_bad_events_makes_a_bounded_answer(client: httpx.AsyncClient) -> None:
    events = [{"type": "AdClicked", f"unknown{i}": i} for i in range(1_000)]

    answer = await client.post("/v1/ads/events:batch", json={"events": events})

    assert len(problem_of(answer, 422)["errors"]) == 50


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/xml", "multipart/form-data", "application/json; charset=utf-7"],
)
async def test_content_type_is_refused_with_415(
    client: httpx.AsyncClient, content_type: str
) -> None:
    answer = await client.post(
        "/v1/ads/events", content=json.dumps(CLICK), headers={"Content-Type": content_type}
    )

    problem_of(answer, 415)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip", "zstd", "GZIP"])
async def test_a_compression_bomb_is_refused_unopened(
    client: httpx.AsyncClient, encoding: str
) -> None:
    bomb = zlib.compress(bytes(50 * 2**20))  # 50 MiB of zeros in 50 kB

    answer = await client.post(
        "/v1/ads/events", content=bomb, headers={**JSON, "Content-Encoding": encoding}
    )

    problem_of(answer, 415)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/leaderboards/b%00d/top",
        "/v1/leaderboards/b%0d%0aX-Injected:1/top",
        "/v1/leaderboards/" + "x" * 129 + "/top",
        "/v1/leaderboards/b/top?k=0",
        "/v1/leaderboards/b/top?k=" + "9" * 5_000,
        "/v1/leaderboards/b/top?k=NaN",
        "/v1/leaderboards/b/top?operator=MAX",
        "/v1/leaderboards/b/top?period=day&at=2026-02-30",
        "/v1/leaderboards/b/top?period=all&at=2026-01-01",
        "/v1/ads/campaigns/c/minutes",
        "/v1/ads/campaigns/c/minutes?from=0&to=4102444800000",
        "/v1/ads/campaigns/c/minutes?from=5&to=4",
        "/v1/ads/campaigns/c/minutes?from=2026-01-01T00:00:00&to=2026-01-01T01:00:00Z",
        "/v1/ads/campaigns/top?from=0&to=0&by=ctr",
    ],
    ids=lambda path: path[:48],
)
async def test_address_is_refused_with_422(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)

    problem_of(answer, 422)


async def test_what_is_not_there_and_what_is_not_allowed(client: httpx.AsyncClient) -> None:
    problem_of(await client.get("/v1/nothing"), 404)
    problem_of(await client.get("/v1/leaderboards/b/rank/nobody"), 404)
    answer = await client.delete("/v1/scores")
    problem_of(answer, 405)
    assert answer.headers["allow"] == "POST"
