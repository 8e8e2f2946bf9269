"""Answers are told when Redis takes them, and dropped and counted when it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis

from streams.runtime.decider import answering
from streams.runtime.decider.answering import Answering
from streams.runtime.decider.replies import ANSWER_TTL_S, Answer, answer_key, channel, decode
from streams.runtime.settings import Settings


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    made = redis.Redis.from_url(Settings.read().redis.url.get_secret_value())
    yield made
    made.close()


def answer(name: str) -> Answer:
    return Answer(name, 201, b"{}", "t", 0, 5, 3)


@pytest.mark.stack
def test_an_answer_is_published_and_kept(client: redis.Redis) -> None:
    name, dropped = uuid4().hex, list[int]()
    heard = client.pubsub()
    heard.subscribe(channel(name))
    heard.get_message(timeout=5)
    told = Answering(Settings.read().redis.url.get_secret_value(), dropped.append)
    told.start()
    told.tell(channel(name), answer(name))
    message = heard.get_message(timeout=10)
    assert message is not None
    assert decode(message["data"]) == answer(name)
    assert decode(client.get(answer_key(name))) == answer(name)
    assert 0 < client.ttl(answer_key(name)) <= ANSWER_TTL_S
    told.stop()
    client.delete(answer_key(name))
    heard.close()
    assert not dropped
    assert not told.is_alive()


def test_nobody_waits_for_a_redis_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "QUEUED_MAX", 10)
    monkeypatch.setattr(answering, "PAUSE_S", 0.01)
    dropped = list[int]()
    told = Answering("redis://127.0.0.1:9/0", dropped.append)
    for n in range(15):  # it has not begun: ten are queued, five are dropped at once
        told.tell("channel", answer(str(n)))
    assert dropped == [1] * 5
    told.start()
    until_s = time.monotonic() + 20
    while sum(dropped) < 15 and time.monotonic() < until_s:
        time.sleep(0.01)
    assert sum(dropped) == 15
    told.stop()
