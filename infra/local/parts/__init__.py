"""The parts of the stack, in starting order: what others need comes first."""

from infra.local.part import Part
from infra.local.parts import (
    alertmanager,
    cassandra,
    clickhouse,
    kafka,
    prometheus,
    redis,
    registry,
    s3,
)

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        kafka.PART,
        redis.PART,
        clickhouse.PART,
        cassandra.PART,
        s3.PART,
        alertmanager.PART,
        prometheus.PART,
        registry.PART,
    )
}
DEFAULT = ("kafka", "registry", "redis", "clickhouse")
"""What `headrace up` starts when it is not told what."""
