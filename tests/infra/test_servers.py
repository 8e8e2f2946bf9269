"""The real servers: what a killed server had acknowledged is there after the next `up`."""

import urllib.parse
import uuid

import psutil
import pytest
import redis
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from infra.local import Stack, process
from streams.runtime.kafka import admin, consumer, producer
from streams.runtime.settings import Settings

pytestmark = pytest.mark.stack


def kill(stack: Stack, part: str) -> None:
    found = process.find(stack.home.run(part))
    assert found is not None
    found.kill()
    found.wait(10)


def test_redis_comes_back_with_its_data_and_wants_its_password(stack: Stack) -> None:
    url = stack.up(["redis"]).redis.url.get_secret_value()
    with redis.Redis.from_url(url) as client:
        client.set("kept", "yes")
        client.execute_command("WAITAOF", 1, 0, 5000)
    kill(stack, "redis")
    assert stack.up(["redis"]).redis.url.get_secret_value() == url
    with redis.Redis.from_url(url) as client:
        assert client.get("kept") == b"yes"
    parts = urllib.parse.urlsplit(url)
    with (
        redis.Redis(host=parts.hostname, port=parts.port) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    memory = next(s.memory_bytes for s in stack.status() if s.part == "redis")
    assert memory


def test_the_redis_password_is_in_no_process_list(stack: Stack) -> None:
    stack.up(["redis"])
    secret = stack.home.secret("redis")
    for found in psutil.process_iter(["cmdline"]):
        assert secret not in " ".join(found.info["cmdline"] or [])
    assert secret not in stack.home.log("redis").read_text()


@pytest.mark.slow
def test_kafka_comes_back_with_its_data_and_settings(stack: Stack) -> None:
    """A broker of its own, so that the shared one is not killed under other tests."""
    settings = stack.up(["kafka"])
    topic = f"launcher-{uuid.uuid4().hex[:8]}"
    client = admin(settings.kafka)
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    writer = producer(settings.kafka)
    writer.produce(topic, b"kept", b"key")
    assert writer.flush(30) == 0
    kill(stack, "kafka")
    again = stack.up(["kafka"])
    assert again.kafka == settings.kafka
    assert read_first(again, topic) == b"kept"
    assert broker_setting(admin(again.kafka), "auto.create.topics.enable") == "false"
    assert broker_setting(admin(again.kafka), "log.message.timestamp.type") == "LogAppendTime"


def read_first(settings: Settings, topic: str) -> bytes | None:
    reader = consumer(settings.kafka, "launcher-test")
    reader.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            message = reader.poll(30)
            assert message is not None
            error = message.error()
            if error is None:
                value: bytes | None = message.value()
                return value
            assert error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        reader.close()


def broker_setting(client: AdminClient, name: str) -> str:
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    return str(client.describe_configs([broker])[broker].result(30)[name].value)


def test_the_stack_of_this_run_is_up() -> None:
    """`headrace test` started it, or the environment names it: all four parts answer."""
    from infra.local import DEFAULT, PARTS

    settings = Settings.read()
    assert all(PARTS[name].ready(settings) for name in DEFAULT)


def test_two_homes_run_side_by_side(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infra.local.home import Home

    first = stack.up(["redis"]).redis.url
    other = Home(tmp_path_factory.mktemp("other"))
    monkeypatch.setenv("HEADRACE_HOME", str(other.root))
    second_stack = Stack(home=other, way="native")
    try:
        second = second_stack.up(["redis"]).redis.url
        assert first != second
    finally:
        second_stack.down()
    assert process.find(stack.home.run("redis")) is not None
