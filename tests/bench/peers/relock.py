"""Writes `java/<engine>.lock` anew: resolves the roots with Maven and records every file.

Run `python -m tests.bench.peers.relock` after changing a version here, and read the diff.
"""

from __future__ import annotations

import json

from infra.local.relock import resolve
from tests.bench.peers.java import SOURCES

FLINK = "2.3.0"
SHARED = (
    "org.apache.avro:avro:jar:1.12.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:jar:2.25.1",
    "org.apache.logging.log4j:log4j-core:jar:2.25.1",
    "redis.clients:jedis:jar:5.2.0",
)
ROOTS = {
    "flink": (
        *(
            f"org.apache.flink:flink-{module}:jar:{FLINK}"
            for module in (
                *("streaming-java", "clients", "connector-base", "avro", "json"),
                *("table-api-java-bridge", "table-planner-loader", "table-runtime"),
            )
        ),
        "org.apache.flink:flink-connector-kafka:jar:5.0.0-2.2",
        *SHARED,
    ),
    "streams": (
        "org.apache.kafka:kafka-streams:jar:4.3.0",
        "com.fasterxml.jackson.core:jackson-core:jar:2.21.2",
        "com.fasterxml.jackson.core:jackson-databind:jar:2.21.2",
        *SHARED,
    ),
}
"""What each engine starts from; Kafka Streams has the version of our broker."""


def main() -> None:
    """Write the files."""
    for engine, roots in ROOTS.items():
        digests = dict(sorted(resolve(roots).items()))
        (SOURCES / f"{engine}.lock").write_text(json.dumps(digests, indent=2) + "\n")


if __name__ == "__main__":
    main()
