"""Apache Cassandra from the official jars, on the Java version it supports (17): one node, or for
tests a ring of several on the addresses of the loopback network.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from infra.local import artifacts, java, probe
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

JAVA = 17
EXPORTS = (
    *("java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch"),
    *("java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry"),
    *("java.rmi/sun.rmi.server", "java.sql/java.sql"),
)
OPENS = (
    *("java.base/java.lang.module", "java.base/jdk.internal.loader"),
    *("java.base/jdk.internal.ref", "java.base/jdk.internal.reflect"),
    *("java.base/jdk.internal.math", "java.base/jdk.internal.module"),
    *("java.base/jdk.internal.util.jar", "jdk.management/com.sun.management.internal"),
    *("java.base/sun.nio.ch", "java.base/java.io", "java.base/java.lang"),
    *("java.base/java.lang.reflect", "java.base/java.util", "java.base/java.nio"),
    *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic"),
)
"""Packages that Cassandra reaches into; from the options file of its own distribution."""
LOGBACK = """\
<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%date{ISO8601} %-5level %logger{0} %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="OUT"/></root></configuration>
"""
OPTIONS_FRAME = bytes([4, 0, 0, 0, 5, 0, 0, 0, 0])
"""Native protocol 4, opcode OPTIONS, empty body (native_protocol_v4.spec §2, §4.1.3)."""
SUPPORTED = 6


@dataclass(frozen=True)
class Node:
    """A node of a ring; by default the only one."""

    name: str = "cassandra"
    """Of its folders."""
    address: str = "127.0.0.1"
    ring: tuple[str, ...] = ("127.0.0.1",)
    """The addresses of all nodes. Each begins with an even share of the tokens and no data."""
    heap_mb: int = 1024
    options: tuple[str, ...] = ()
    """Further options of the Java runtime."""

    @property
    def first_token(self) -> int:
        """Where its share of the ring begins."""
        return -(2**63) + self.ring.index(self.address) * 2**64 // len(self.ring)


def configuration(site: Site, node: Node) -> dict[str, Any]:
    """The content of `cassandra.yaml`, which is written as JSON, a part of YAML."""
    data = site.home.data(node.name)
    seeds = [{"seeds": ",".join(f"{at}:{site.ports['storage']}" for at in node.ring)}]
    share = {"initial_token": str(node.first_token), "auto_bootstrap": False}
    return {
        "cluster_name": "headrace",
        "num_tokens": 1,
        **(share if len(node.ring) > 1 else {}),
        "hinted_handoff_enabled": False,
        "authenticator": "AllowAllAuthenticator",
        "authorizer": "AllowAllAuthorizer",
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "data_file_directories": [str(data / "data")],
        "commitlog_directory": str(data / "commitlog"),
        "saved_caches_directory": str(data / "saved_caches"),
        "hints_directory": str(data / "hints"),
        "cdc_enabled": False,
        "auto_snapshot": False,
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "1000ms",
        "disk_failure_policy": "stop",
        "commit_failure_policy": "stop",
        "seed_provider": [
            {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": seeds}
        ],
        "listen_address": node.address,
        "rpc_address": node.address,
        "native_transport_port": site.ports["main"],
        "storage_port": site.ports["storage"],
        "start_native_transport": True,
        "endpoint_snitch": "SimpleSnitch",
        "memtable_allocation_type": "heap_buffers",
    }


def prepare(site: Site) -> Launch:
    """The only node."""
    return launch(site, Node())


def launch(site: Site, node: Node) -> Launch:
    """Jars, `cassandra.yaml`, `logback.xml`, and the long list of module options."""
    runtime = java.runtime(site, JAVA, JAVA)
    libs = artifacts.jars(site, "cassandra")
    conf, data = site.home.conf(node.name), site.home.data(node.name)
    conf.mkdir(parents=True, exist_ok=True)
    data.mkdir(parents=True, exist_ok=True)
    (conf / "cassandra.yaml").write_text(json.dumps(configuration(site, node), indent=1))
    (conf / "logback.xml").write_text(LOGBACK)
    properties = {
        "cassandra.config": (conf / "cassandra.yaml").as_uri(),
        "cassandra.storagedir": data,
        "cassandra-foreground": "yes",
        "cassandra.skip_wait_for_gossip_to_settle": 0,
        "cassandra.ring_delay_ms": 100,
    }
    heap = (f"-Xms{node.heap_mb // 2}m", f"-Xmx{node.heap_mb}m")
    argv = (
        *(runtime, *heap, "-XX:+ExitOnOutOfMemoryError", *node.options),
        *(f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTS),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-cp", f"{conf}:{libs}/*", "org.apache.cassandra.service.CassandraDaemon"),
    )
    return Launch(argv, cwd=data)


def address(settings: Settings) -> tuple[str, int]:
    return settings.cassandra.contact_points[0], settings.cassandra.port


def values(site: Site) -> dict[str, Any]:
    return {"contact_points": ["127.0.0.1"], "port": site.ports["main"]}


def ready(settings: Settings) -> bool:
    """Whether CQL is served: the native transport is the last thing that Cassandra starts."""
    answer = probe.ask(address(settings), OPTIONS_FRAME, 9)
    return len(answer) >= 5 and answer[4] == SUPPORTED


PART = Part(
    name="cassandra",
    ports={"main": 19042, "storage": 17000},
    variables=("HEADRACE_CASSANDRA__CONTACT_POINTS", "HEADRACE_CASSANDRA__PORT"),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
)
