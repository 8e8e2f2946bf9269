"""The evaluator as a program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import structlog
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from connectors.encode import Encoder
from connectors.producer import LogProducer, ProducerError
from infra.alerts.evaluator import Evaluator, Notifier
from schemas.registry import schema_ids
from schemas.telemetry.events import ALERTS, LOGS
from sinks.telemetry.open import open_telemetry
from sinks.telemetry.query import Span
from sinks.telemetry.rollups import RollupReader
from streams.runtime import kafka
from streams.runtime.position import NO_WATERMARK
from streams.runtime.settings import Settings
from streams.runtime.sink import SinkError, SinkUnavailable
from streams.telemetry import alerting
from streams.telemetry.alerting import Alert, Progress, Rule

EVERY_S = 5.0
ASK_TIMEOUT_S = 10.0
DEFAULT_RULES = Path(__file__).with_name("rules.toml")

log = structlog.get_logger("alerts")


def rules_of(settings: Settings) -> tuple[Rule, ...]:
    """The rules of the settings. Raises `BadRules`."""
    return alerting.read(settings.telemetry.alert_rules_file or DEFAULT_RULES)


class LogProgress:
    """How far the rollups are, against where the log ends."""

    def __init__(self, settings: Settings, rollups: RollupReader) -> None:
        self._admin = kafka.admin(settings.kafka)
        self._rollups = rollups

    async def __call__(self) -> Sequence[Progress]:
        """Of every partition. The ends are asked first, so a partition is never taken to be at its
        end that is not. Raises `SinkUnavailable` while broker or store does not answer.
        """
        ends = await asyncio.to_thread(self._ends)
        positions = await self._rollups.positions()
        found = []
        for at, end in ends.items():
            position = positions.get(at)
            watermark_ms = NO_WATERMARK if position is None else position.watermark_ms
            next_offset = 0 if position is None else position.next_offset
            found.append(Progress(watermark_ms, next_offset, end))
        return found

    def _ends(self) -> dict[int, int]:
        wanted = {
            TopicPartition(LOGS.name, at): OffsetSpec.latest() for at in range(LOGS.partitions)
        }
        try:
            asked = self._admin.list_offsets(wanted, request_timeout=ASK_TIMEOUT_S)
            return {place.partition: future.result().offset for place, future in asked.items()}
        except KafkaException as error:
            raise SinkUnavailable(
                f"the broker does not tell where the log ends: {error}"
            ) from error


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Evaluate until `stop` is set; whatever does not answer is asked again."""
    rules = rules_of(settings)
    ids = await asyncio.to_thread(schema_ids, ALERTS, settings.registry)
    encoders = {ALERTS.name: Encoder(ALERTS, ids)}
    now_ms = lambda: time.time_ns() // 1_000_000  # noqa: E731
    async with (
        open_telemetry(settings) as readers,
        LogProducer.open(settings.kafka, encoders) as producer,
        httpx.AsyncClient(base_url=settings.alertmanager.url, timeout=ASK_TIMEOUT_S) as client,
    ):
        rollups: RollupReader = readers["telemetry-rollups"]
        evaluator = Evaluator(rules, rollups, producer, LogProgress(settings, rollups), now_ms)
        notifier = Notifier(client, now_ms)
        resumed = False
        while not stop.is_set():
            try:
                if not resumed:
                    await evaluator.resume(readers["telemetry-alerts"])
                    resumed = True
                for change in await evaluator.step():
                    log.info("alert", **change.row())
            except (SinkError, ProducerError) as error:
                log.warning("not judged", error=str(error))
            try:
                await notifier.tell(evaluator.standing)
            except httpx.HTTPError as error:
                log.warning("alertmanager does not answer", error=repr(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), EVERY_S)


async def replay(settings: Settings, span: Span) -> list[Alert]:
    """What the rules would have made of a span of the past; nobody is told."""
    rules = rules_of(settings)
    widest_ms = max((rule.window_minutes for rule in rules), default=0) * alerting.MINUTE_MS
    async with open_telemetry(settings) as readers:
        rollups: RollupReader = readers["telemetry-rollups"]
        counts = await rollups.counts(Span(span.from_ms - widest_ms, span.to_ms), "minute")
    return alerting.replay(rules, counts, span.from_ms, span.to_ms)
