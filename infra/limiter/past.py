"""Decisions of a span of time, from the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pydantic import ValidationError

from api.problem import Problem
from api.routes.limiter import RuleInput
from infra.error import StackError
from schemas.limiter.events import DECISIONS
from schemas.limiter.rules import Rule
from streams.limiter.replay import ordered
from streams.runtime import kafka
from streams.runtime.avro import Decoded, Decoder, RegistrySource
from streams.runtime.settings import Settings
from streams.runtime.watermark import milliseconds

CONSUME_ROWS = 5_000
TIMEOUT_S = 10.0


def rule_of(file: Path) -> Rule:
    """The rule in a JSON file: what `PUT /v1/limiter/rules/…` takes, named after the file. Raises
    `StackError`.
    """
    try:
        return RuleInput.model_validate_json(file.read_bytes()).rule(file.stem)
    except OSError as error:
        raise StackError(f"{file}: {error.strerror}") from error
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
        raise StackError(f"{file}: {'; '.join(wrong)}") from error
    except Problem as error:
        raise StackError(f"{file}: {error.detail}") from error


def decisions(settings: Settings, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Decisions with `since <= event time < until`, each once, in the order they were made.

    The log is read from the records appended at `since`, which is before any later decision. All
    of the span is held in memory: about 0.5 kB a decision. Raises `StackError`.
    """
    record = DECISIONS.records[0]
    frames = [
        pl.DataFrame(schema={**record.dtypes, "_partition": pl.Int64, "_offset": pl.Int64}),
    ]
    try:
        with (
            closing(RegistrySource(settings.registry.url)) as schemas,
            closing(kafka.consumer(settings.kafka, "limiter-past")) as consumer,
        ):
            decoder = Decoder(DECISIONS, schemas)
            for partition in range(DECISIONS.partitions):
                for values, offsets in _spans(consumer, partition, since_ms):
                    found = _placed(decoder.decode(values), partition, offsets)
                    frames += [frame.select(frames[0].columns) for frame in found]
    except KafkaException as error:
        raise StackError(f"the log of decisions cannot be read: {error}") from error
    rows = pl.concat(frames)
    times = milliseconds(rows["event_time"])
    return ordered(rows.filter((times >= since_ms) & (times < until_ms)))


def _placed(decoded: Decoded, partition: int, offsets: list[int]) -> Iterator[pl.DataFrame]:
    """The rows with their places in the log."""
    for frame in decoded.frames.values():
        at = [offsets[row] for row in frame["_row"].to_list()]
        yield frame.with_columns(
            pl.lit(partition, pl.Int64).alias("_partition"), pl.Series("_offset", at, pl.Int64)
        )


def _spans(
    consumer: Consumer, partition: int, since_ms: int
) -> Iterator[tuple[list[bytes | None], list[int]]]:
    """Values and offsets of a partition, up to where it ends now."""
    at = TopicPartition(DECISIONS.name, partition, since_ms)
    [start] = consumer.offsets_for_times([at], timeout=TIMEOUT_S)
    _, end = consumer.get_watermark_offsets(
        TopicPartition(DECISIONS.name, partition), timeout=TIMEOUT_S
    )
    following = start.offset
    if following < 0 or following >= end:
        return
    consumer.assign([TopicPartition(DECISIONS.name, partition, following)])
    while following < end:
        messages = consumer.consume(CONSUME_ROWS, timeout=0.2)
        for message in messages:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
        offsets = [int(message.offset() or 0) for message in messages]
        if offsets:
            yield [message.value() for message in messages], offsets
            following = offsets[-1] + 1
