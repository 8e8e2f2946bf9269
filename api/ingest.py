"""The write routes of a system: `POST /v1/<system>/events` and `…/events:batch`.

Both take events with a `type`, the record's name, and answer 202 when all of them are durable in
the log, with their place in `Headrace-Position`. A batch is all or nothing *as input*: one bad
event, and none is sent; the error names its index. Retries are safe when the client gives the
event ids: the same id is the same event, however often it arrives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Annotated, Any, cast

import uuid_utils
from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, Field, create_model

from api import positions
from api.auth import WRITE, Principal, require, requires
from api.json_route import JsonRoute
from api.models import Input, event_model
from api.problem import responses
from api.services import RateDep, Services, ServicesDep
from connectors.producer import RecordMetadata
from streams.runtime.topic import RecordType, Topic

BATCH_EVENTS_MAX = 1_000


@dataclass(frozen=True)
class Accepts:
    """One record type that clients may send. `identity` is the field that makes retries safe,
    `scopes` are what a token needs to send it, `narrower` are tighter types of some fields.
    """

    topic: Topic
    record: RecordType
    identity: str
    scopes: tuple[str, ...] = (WRITE,)
    narrower: Mapping[str, Any] = field(default_factory=dict)


class Place(BaseModel):
    """Where an event is in the log."""

    topic: str = Field(examples=["ads.events"])
    partition: int = Field(examples=[2])
    offset: int = Field(examples=[1041])


class Accepted(BaseModel):
    """An event is durable in the log."""

    id: str = Field(description="The event's id: the client's, or the one made here (UUIDv7).")
    position: Place


class BatchAccepted(BaseModel):
    """All events of a batch are durable in the log."""

    accepted: int
    ids: list[str] = Field(description="The events' ids, in the order of the request.")
    positions: list[Place] = Field(description="The last place in each partition.")


def new_id() -> str:
    """An id for an event that came without: UUIDv7, so that ids sort by time."""
    return str(uuid_utils.uuid7())


def place(record: RecordMetadata) -> Place:
    """A delivered record's place, as answers show it."""
    return Place(topic=record.topic, partition=record.partition, offset=record.offset)


class Ingest:
    """Sends validated events of one system."""

    def __init__(self, accepts: Sequence[Accepts]) -> None:
        self._by_type = {accepted.record.name: accepted for accepted in accepts}

    async def send(
        self, services: Services, principal: Principal, events: Sequence[Mapping[str, Any]]
    ) -> tuple[list[str], list[RecordMetadata]]:
        """Ids and places, in order, once all are durable. Raises 403 and `ProducerError`."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        rows: list[tuple[str, dict[str, Any]]] = []
        ids: list[str] = []
        for kind in {event["type"] for event in events}:
            require(principal, *self._by_type[kind].scopes)
        for index, event in enumerate(events):
            accepted = self._by_type[event["type"]]
            row = {name: value for name, value in event.items() if name != "type"}
            row[accepted.identity] = row.get(accepted.identity) or new_id()
            ids.append(row[accepted.identity])
            rows.append((accepted.record.name, row))
            by_topic[accepted.topic.name].append(index)
        places: dict[int, RecordMetadata] = {}
        for topic, indexes in by_topic.items():
            sent = await services.producer.send_many(topic, [rows[i] for i in indexes])
            places.update(zip(indexes, sent, strict=True))
        return ids, [places[index] for index in range(len(rows))]


def router(system: str, accepts: Sequence[Accepts], examples: Mapping[str, Any]) -> APIRouter:
    """The write routes of a system. `examples` are shown in the OpenAPI document by name."""
    models = [event_model(a.record, a.identity, a.narrower) for a in accepts]
    event_type: Any = reduce(or_, models)
    if len(models) > 1:
        event_type = Annotated[event_type, Field(discriminator="type")]
    batch_type = _batch_model(system, event_type, next(iter(examples.values())))
    ingest = Ingest(accepts)
    routes = APIRouter(
        prefix=f"/v1/{system}", tags=[system], route_class=JsonRoute, responses=responses(413, 415)
    )
    shown = {name: {"value": value} for name, value in examples.items()}

    async def send_event(
        event: Input,
        response: Response,
        services: ServicesDep,
        principal: Annotated[Principal, requires(WRITE)],
    ) -> Accepted:
        ids, (sent,) = await ingest.send(services, principal, [event.model_dump()])
        response.headers[positions.POSITION] = positions.header([sent])
        return Accepted(id=ids[0], position=place(sent))

    async def send_batch(
        batch: Input,
        response: Response,
        services: ServicesDep,
        rate: RateDep,
        principal: Annotated[Principal, requires(WRITE)],
    ) -> BatchAccepted:
        events = cast("list[Mapping[str, Any]]", batch.model_dump()["events"])
        rate.take(principal.subject, len(events) - 1)  # the request itself has cost one
        ids, sent = await ingest.send(services, principal, events)
        response.headers[positions.POSITION] = positions.header(sent)
        last = {(r.topic, r.partition): r for r in sorted(sent)}
        return BatchAccepted(
            accepted=len(ids), ids=ids, positions=[place(record) for record in last.values()]
        )

    # The body's type is only known here; FastAPI reads it from the annotation.
    send_event.__annotations__["event"] = Annotated[event_type, _body(shown)]
    send_batch.__annotations__["batch"] = batch_type
    for path, handler, summary in (
        ("/events", send_event, "Send one event"),
        ("/events:batch", send_batch, f"Send up to {BATCH_EVENTS_MAX} events, all or nothing"),
    ):
        routes.add_api_route(
            path,
            handler,
            methods=["POST"],
            status_code=202,
            summary=summary,
            description=__doc__.split("\n\n", 1)[1],
            operation_id=f"{system}_{handler.__name__}",
            responses={202: {"headers": POSITION_HEADER}},
        )
    return routes


POSITION_HEADER = {
    positions.POSITION: {
        "description": "Where the events are: `topic/partition/offset`, comma separated; the last "
        f"offset of each partition. Send it as `{positions.AFTER}` to read your writes.",
        "required": True,
        "schema": {"type": "string"},
        "example": "ads.events/2/1041",
    }
}
APPLIED_HEADER = {
    positions.APPLIED: {
        "description": "Every event up to these positions is in the answer.",
        "required": True,
        "schema": {"type": "string"},
        "example": "ads.events/2/1041",
    }
}


def _body(examples: Mapping[str, Any]) -> Any:
    return Body(openapi_examples=dict(examples))


def _batch_model(system: str, event_type: Any, example: Any) -> type[Input]:
    events = Annotated[list[event_type], Field(min_length=1, max_length=BATCH_EVENTS_MAX)]
    fields: dict[str, Any] = {"events": (events, Field(examples=[[example]]))}
    return create_model(f"{system.title()}Batch", __base__=Input, **fields)
