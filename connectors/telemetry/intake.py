"""From decoded lines and samples to the log: rules, limits, and an account of both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from connectors.producer import EventProducer, ProducerError, RecordMetadata
from connectors.telemetry import rules as keeping
from connectors.telemetry.line import Line, identified
from connectors.telemetry.rules import Rule
from connectors.telemetry.series import Admission, Sample
from schemas.telemetry.events import LOGS, SAMPLES
from streams.runtime.settings import Telemetry
from streams.runtime.sink import SinkError

LEARN_EVERY_S = 30.0
FORGET_AFTER_S = 24 * 3_600.0


class DeclaredSeries(Protocol):
    """Where other processes' series can be looked up."""

    async def declared(self) -> Mapping[str, Mapping[str, int]]:
        """Metric → series → time of its last declaration, milliseconds."""
        ...


@dataclass(frozen=True)
class Taken:
    """What became of a request: records in the log, and what was not taken, by reason."""

    places: list[RecordMetadata]
    accepted: int
    dropped: Counter[str] = field(default_factory=Counter)
    """Lines that a rule took away, by rule: as wanted."""
    refused: Counter[str] = field(default_factory=Counter)
    """What the sender should know of."""


@dataclass
class Account:
    """What became of everything since this process began."""

    accepted: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """By rule."""
    refused: Counter[str] = field(default_factory=Counter)
    """By reason."""

    def add(self, accepted: int, dropped: Counter[str], refused: Counter[str]) -> None:
        """Add a request's."""
        self.accepted += accepted
        self.dropped += dropped
        self.refused += refused


class Intake:
    """One per process; `account` is what it did."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        admission: Admission | None = None,
        declared: DeclaredSeries | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = rules
        self._admission = admission or Admission()
        self._declared = declared
        self._clock = clock
        self.account = Account()
        self._learned_s = -LEARN_EVERY_S

    @classmethod
    def configured(cls, telemetry: Telemetry, declared: DeclaredSeries | None = None) -> Intake:
        """The intake of these settings. Raises `BadRules`."""
        rules = keeping.read(telemetry.rules_file)
        return cls(rules, Admission(telemetry.series_max), declared)

    async def lines(self, producer: EventProducer, lines: Iterable[Line | None]) -> Taken:
        """Append lines that the rules keep; None stands for one that could not be read. Returns
        when all are durable. Raises `ProducerError`.
        """
        arrived = list(lines)
        read = [line for line in arrived if line is not None]
        kept = keeping.apply(self._rules, identified(read))
        rows = [("LogLine", line.row()) for line in kept.lines]
        places = await producer.send_many(LOGS.name, rows)
        refused = +Counter({"time out of range": len(arrived) - len(read)})
        self.account.add(len(rows), kept.dropped, refused)
        return Taken(places, len(rows), kept.dropped, refused)

    async def samples(self, producer: EventProducer, samples: Iterable[Sample]) -> Taken:
        """Append samples of known series, and of new ones within the limit. Returns when all are
        durable. Raises `ProducerError`.
        """
        await self._learn()
        admitted = self._admission.admit(samples, self._clock())
        try:
            places = await producer.send_many(SAMPLES.name, admitted.rows)
        except ProducerError:
            self._admission.withdraw(admitted)
            raise
        refused = Counter(
            {f"over the limit of series of {name}": n for name, n in admitted.refused.items()}
        )
        self.account.add(admitted.samples, Counter(), refused)
        return Taken(places, admitted.samples, refused=refused)

    async def _learn(self) -> None:
        """Look up what other processes declared. Without an answer what is known here stays."""
        now_s = self._clock()
        if self._declared is None or now_s - self._learned_s < LEARN_EVERY_S:
            return
        self._learned_s = now_s
        try:
            self._admission.learn(await self._declared.declared(), now_s)
        except SinkError:
            return
        finally:
            self._admission.forget(now_s - FORGET_AFTER_S)
