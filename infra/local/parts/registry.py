"""Apicurio Registry with its Confluent-compatible API; the schemas live in Kafka."""

from __future__ import annotations

from typing import Any

from infra.local import artifacts, java, probe
from infra.local.part import Part, Site
from infra.local.process import Launch
from streams.runtime.settings import Settings

JAVA_LOWEST = 21
API = "/apis/ccompat/v7"
STORAGE = {
    "apicurio.storage.kind": "kafkasql",
    # At start the registry waits twice for this long for a snapshot that is not there; its
    # default of 5 s is most of its start time. Missing a snapshot only means reading more.
    "apicurio.kafkasql.consumer.poll.timeout": "1000",
}
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A short-lived, little used JVM: less compilation, no collector threads."""


def prepare(site: Site) -> Launch:
    """The unpacked application and its system properties."""
    runtime = java.runtime(site, JAVA_LOWEST)
    app = artifacts.unpacked(site, "registry")
    properties = {
        **STORAGE,
        "apicurio.kafkasql.bootstrap.servers": site.settings.kafka.bootstrap_servers,
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": site.ports["main"],
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": site.ports["management"],
        "quarkus.log.level": "WARN",
    }
    defined = [f"-D{name}={value}" for name, value in properties.items()]
    argv = (runtime, "-Xmx512m", *FAST_START, *defined, "-jar", "quarkus-run.jar")
    return Launch(argv, cwd=app)


def address(settings: Settings) -> tuple[str, int]:
    return probe.endpoint(settings.registry.url)


def values(site: Site) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{site.ports['main']}{API}"}


def ready(settings: Settings) -> bool:
    return probe.http_ok(f"{settings.registry.url}/subjects")


PART = Part(
    name="registry",
    ports={"main": 18081, "management": 18082},
    variables=("HEADRACE_REGISTRY__URL",),
    address=address,
    values=values,
    prepare=prepare,
    ready=ready,
    needs=("kafka",),
)
