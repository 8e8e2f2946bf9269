"""Which errors of a Kafka consumer pass by themselves."""

from __future__ import annotations

import structlog
from confluent_kafka import KafkaError, KafkaException

log = structlog.get_logger()

_TRANSIENT = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._PARTITION_EOF,
    KafkaError._RESOLVE,
    KafkaError._MAX_POLL_EXCEEDED,  # the next poll joins the group again
}


def passing(error: KafkaError | None) -> bool:
    """Whether an error that the client mends by itself came instead of a record (None: none did);
    raises `KafkaException` for one that it cannot mend.
    """
    if error is None:
        return False
    if error.retriable() or error.code() in _TRANSIENT:
        log.warning("kafka", error=error.str(), code=error.name())
        return True
    raise KafkaException(error)
