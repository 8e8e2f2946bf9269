"""Apache Kafka: one node that is broker and controller (KRaft), from the official jars."""

from __future__ import annotations

import base64
import subprocess
import uuid
from pathlib import Path
from typing import Any

from infra.error import StackError
from infra.local import artifacts, java, probe
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

JAVA_LOWEST = 17
BROKER = {
    "auto.create.topics.enable": "false",
    "log.message.timestamp.type": "LogAppendTime",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Settings that clients can notice; the Compose file has the same."""
LOG4J = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


def properties(site: Site) -> dict[str, str]:
    """The whole server configuration."""
    main, controller = site.ports["main"], site.ports["controller"]
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{main},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{main}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(site.home.data("kafka")),
        **BROKER,
    }


def prepare(site: Site) -> Launch:
    """Jars, configuration, and on the first start the formatted log folder."""
    runtime = java.runtime(site, JAVA_LOWEST)
    libs = artifacts.jars(site, "kafka")
    conf, data = site.home.conf("kafka"), site.home.data("kafka")
    conf.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    server, log4j = conf / "server.properties", conf / "log4j2.properties"
    server.write_text("".join(f"{k}={v}\n" for k, v in properties(site).items()))
    log4j.write_text(LOG4J)
    base = (runtime, "-cp", f"{libs}/*", f"-Dlog4j2.configurationFile={log4j}")
    if not (data / "meta.properties").exists():
        site.say("formatting the log folder")
        _format(base, server)
    heap = ("-Xms256m", "-Xmx1g", "-XX:+ExitOnOutOfMemoryError")
    return Launch((*base[:1], *heap, *base[1:], "kafka.Kafka", str(server)), cwd=conf)


def _format(base: tuple[str, ...], server: Path) -> None:
    named = f"--cluster-id={cluster_id(uuid.uuid4())}"
    tool = ("kafka.tools.StorageTool", "format", "--ignore-formatted", named)
    done = subprocess.run(
        [*base, *tool, "-c", str(server)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StackError(f"Kafka could not format its folder: {done.stdout}{done.stderr}")


def cluster_id(one: uuid.UUID) -> str:
    """As Kafka writes it. The first bit is not part of what makes it unique: one id in 64 would
    begin with a dash, and the tool that formats would take it for an option.
    """
    first, *rest = one.bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *rest])).decode().rstrip("=")


def address(settings: Settings) -> tuple[str, int]:
    """The first bootstrap server."""
    host, _, port = settings.kafka.bootstrap_servers.split(",")[0].rpartition(":")
    return host, int(port)


def values(site: Site) -> dict[str, Any]:
    return {"bootstrap_servers": f"127.0.0.1:{site.ports['main']}"}


def ready(settings: Settings) -> bool:
    """Whether the cluster names a broker that clients can go to."""
    if not probe.listens(address(settings)):
        return False
    from confluent_kafka import KafkaException

    from streams.runtime.kafka import admin

    quiet = {**settings.kafka.config, "log_level": "0"}
    client = admin(settings.kafka.model_copy(update={"config": quiet}))
    try:
        return bool(client.list_topics(timeout=probe.ASK_WITHIN_S).brokers)
    except KafkaException:
        return False


PART = Part(
    name="kafka",
    ports={"main": 19092, "controller": 19094},
    variables=("HEADRACE_KAFKA__BOOTSTRAP_SERVERS",),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
    stop_within_s=30.0,
)
