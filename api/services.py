"""What the routes need, opened once by the application's lifespan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Request
from prometheus_client import Counter

from api.auth import Verifier
from api.limits import Rate
from api.problem import busy
from connectors.producer import EventProducer, Headers, RecordMetadata
from connectors.replies import NoReplies, Replies
from schemas.catalog import system_of

if TYPE_CHECKING:
    from api.limiter import Limiter


class CountedProducer:
    """A producer that counts what the log acknowledged, by system and topic."""

    def __init__(self, producer: EventProducer, counter: Counter) -> None:
        self._producer = producer
        self._counter = counter

    async def send(
        self, topic: str, record_name: str, row: Any, headers: Headers = ()
    ) -> RecordMetadata:
        """As the producer's."""
        (sent,) = await self.send_many(topic, [(record_name, row)], headers)
        return sent

    async def send_many(
        self, topic: str, rows: Sequence[tuple[str, Any]], headers: Headers = ()
    ) -> list[RecordMetadata]:
        """As the producer's."""
        sent = await self._producer.send_many(topic, rows, headers)
        self._counter.labels(system_of(topic), topic).inc(len(sent))
        return sent


Readiness = Mapping[str, str]
"""Part → "ok" or why it is not."""


async def always_ready() -> Readiness:
    """Readiness of services without outside parts."""
    return {}


@dataclass(frozen=True)
class Services:
    """Everything that routes use. `readers` holds, by system, the object behind its read routes;
    a system without one answers 503 on reads. `replies` hears the verdicts of deciders. Without a
    `limiter` no rule is asked.
    """

    producer: EventProducer
    verifier: Verifier
    readers: Mapping[str, Any] = field(default_factory=dict)
    replies: Replies = field(default_factory=NoReplies)
    ready: Callable[[], Awaitable[Readiness]] = always_ready
    info: Mapping[str, Any] = field(default_factory=dict)
    limiter: Limiter | None = None

    def opened(self, name: str) -> Any:
        """One of `readers` that is no read model. Raises the 503 problem where it is missing."""
        if name not in self.readers:
            raise busy(f"this server has no {name}", retry_after_s=60)
        return self.readers[name]


# Dependencies are coroutines although they wait for nothing: FastAPI calls a plain function in a
# thread, which costs more than all the rest of a request when the machine is busy.


async def services(request: Request) -> Services:
    """Dependency: the services of this application."""
    return cast("Services", request.app.state.services)


async def rate(request: Request) -> Rate:
    """Dependency: the rates of the subjects."""
    return cast("Rate", request.app.state.rate)


ServicesDep = Annotated[Services, Depends(services)]
RateDep = Annotated[Rate, Depends(rate)]
