"""Routes that need a verdict: send a command, wait for its decider, answer what it says.

    verdict = await ask(services, asked, events.COMMANDS, events.CAPTURE_PAYMENT.name, row)

`asked` is the dependency `Asked`: who asks, the `Idempotency-Key`, how long to wait. The answer is
the verdict's status and body, with `Headrace-Position` (the event) and, for a repeat of a command
that was decided before, `Idempotent-Replay: true`. Past the deadline it is 202 with `Location`,
where the verdict can be fetched for an hour; the command is then decided all the same.

Same key, same request: the first verdict again, also when both arrive at once. Same key, other
request: 422. A key belongs to its sender and to the record key of the command (rule: whoever
decides the effect decides the key), so a route that creates must derive the new id from the key:
`Asked.new_id`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
import uuid_utils
from fastapi import APIRouter, Depends, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from redis.exceptions import RedisError

from api import ingest, positions
from api.auth import READ, Principal, requires
from api.problem import (
    MEDIA_TYPE,
    InputError,
    Problem,
    ProblemDocument,
    busy,
    request_id,
    responses,
)
from api.services import Services, ServicesDep
from connectors.producer import RecordMetadata
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.topic import Topic

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAY = "Idempotent-Replay"
KEY_CHARS_MAX = 255
WAIT_MS = 5_000
WAIT_MS_MAX = 30_000
VERDICT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Done.", "headers": ingest.POSITION_HEADER},
    201: {"description": "Made.", "headers": ingest.POSITION_HEADER},
    202: {"description": "Not decided in time; Location says where to ask."},
}
"""OpenAPI entries of a verdict, for the routes that `ask`."""
_NAMESPACE = uuid.UUID("6f0e4a0e-53a5-4c5e-9f63-0c1d7a1f2b9e")
_ASYNC = re.compile(r"(?:^|,)\s*respond-async\s*(?:$|[,;])", re.ASCII)
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True)
class Asked:
    """What a request says about itself. `key` is "" where the client gave none."""

    subject: str
    key: str
    fingerprint: str
    wait_ms: int
    request_id: str

    def key_for(self, record_key: str) -> str:
        """The key as the decider knows it: two clients never share one, nor do two record keys,
        whether one decider has both of them or not.
        """
        return f"{self.subject}\n{record_key}\n{self.key}" if self.key else ""

    def new_id(self, kind: str) -> str:
        """The id of a thing that this request creates; a repeat with the same key gets the same
        id, and so reaches the same decider. Without a key it is random.
        """
        if not self.key:
            return str(uuid.uuid4())
        return str(uuid.uuid5(_NAMESPACE, f"{kind}\n{self.subject}\n{self.key}"))


async def asked(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Makes a repeat of this request harmless: it is answered as the first. "
            f"At most {KEY_CHARS_MAX} printable ASCII characters.",
            examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
        ),
    ] = None,
    prefer: Annotated[
        str | None,
        Header(
            alias="Prefer",
            max_length=256,
            description=f"`wait=N` seconds for the verdict, at most {WAIT_MS_MAX // 1_000}; "
            "`respond-async` not to wait at all.",
            examples=["wait=10"],
        ),
    ] = None,
) -> Asked:
    """Dependency: what the request says about itself. Raises 400 for a key that cannot be one."""
    if idempotency_key is not None and (
        len(idempotency_key) > KEY_CHARS_MAX or not _PRINTABLE.fullmatch(idempotency_key)
    ):
        detail = f"{IDEMPOTENCY_KEY} has 1 to {KEY_CHARS_MAX} printable ASCII characters"
        wrong = InputError(detail=detail, parameter=IDEMPOTENCY_KEY)
        raise Problem(HTTPStatus.BAD_REQUEST, "bad-idempotency-key", detail, errors=[wrong])
    principal: Principal = request.scope["state"]["principal"]
    return Asked(
        subject=principal.subject,
        key=idempotency_key or "",
        fingerprint=await _fingerprint(request),
        wait_ms=_wait_ms(prefer),
        request_id=request_id(request.scope),
    )


async def asked_with_key(request: Request, this: Annotated[Asked, Depends(asked)]) -> Asked:
    """Dependency: as `asked`, for routes where a repeat would do harm: the key is required."""
    if not this.key:
        detail = f"{IDEMPOTENCY_KEY} is required here"
        wrong = InputError(detail=detail, parameter=IDEMPOTENCY_KEY)
        raise Problem(HTTPStatus.BAD_REQUEST, "no-idempotency-key", detail, errors=[wrong])
    return this


AskedDep = Annotated[Asked, Depends(asked)]
KeyedDep = Annotated[Asked, Depends(asked_with_key)]


async def ask(
    services: Services, asked: Asked, topic: Topic, record_name: str, row: Any
) -> Response:
    """Send one command and answer its verdict, or 202 when there is none in time.

    Raises what the producer raises: `EncodeError`, `Saturated`, and `Undelivered`, after which the
    same request with the same key is the way to go on.
    """
    record_key = row[topic.key] if isinstance(row, Mapping) else getattr(row, topic.key)
    envelope = Envelope(
        correlation_id=str(uuid_utils.uuid7()),
        reply_to=services.replies.address,
        idempotency_key=asked.key_for(str(record_key)),
        fingerprint=asked.fingerprint,
        subject=asked.subject,
    )
    with services.replies.expect(envelope.correlation_id) as verdict:
        headers = envelope_headers(envelope)
        sent = await services.producer.send(topic.name, record_name, row, headers)
        try:
            answer = await asyncio.wait_for(verdict, asked.wait_ms / 1_000)
        except TimeoutError:
            return _pending(envelope.correlation_id, sent)
    return respond(answer, asked.request_id)


def respond(answer: Answer, request_id: str) -> Response:
    """The HTTP answer of a verdict; a refusal is a problem document, like every error."""
    event = RecordMetadata(answer.topic, answer.partition, answer.offset)
    headers = {positions.POSITION: positions.header([event])}
    if answer.replay:
        headers[REPLAY] = "true"
    if answer.status < HTTPStatus.BAD_REQUEST:
        return Response(answer.body, answer.status, headers, "application/json")
    told = msgspec.json.decode(answer.body)
    status = HTTPStatus(answer.status)
    document = ProblemDocument(
        type=f"urn:headrace:problem:{str(told.get('code', 'rejected')).replace('_', '-')}",
        title=status.phrase,
        status=status,
        detail=str(told.get("detail", status.description)),
        instance=f"urn:uuid:{request_id}",
    )
    content = document.model_dump(exclude_none=True)
    return JSONResponse(content, status, headers, MEDIA_TYPE)


def _pending(correlation_id: str, sent: RecordMetadata) -> Response:
    headers = {
        "Location": f"/v1/commands/{correlation_id}",
        "Retry-After": "1",
        positions.POSITION: positions.header([sent]),
    }
    return JSONResponse({"state": "pending", "command": correlation_id}, 202, headers)


async def _fingerprint(request: Request) -> str:
    """A digest of method, path, query and body as they came."""
    target = f"{request.method} {request.scope['path']}?".encode()
    query: bytes = request.scope["query_string"]
    return hashlib.sha256(target + query + b"\n" + await request.body()).hexdigest()[:32]


def _wait_ms(prefer: str | None) -> int:
    if prefer and _ASYNC.search(prefer.lower()):
        return 0
    return positions.preferred_wait_ms(prefer, WAIT_MS, WAIT_MS_MAX)


router = APIRouter(prefix="/v1/commands", tags=["commands"], responses=responses(404))


@router.get("/{command}", responses={202: {"description": "Not decided yet, or long ago."}})
async def verdict(
    command: Annotated[uuid.UUID, Path(description="The command, as its 202 answer named it.")],
    request: Request,
    services: ServicesDep,
    principal: Annotated[Principal, requires(READ)],
) -> Response:
    """The verdict on a command that was answered with 202; kept for an hour."""
    try:
        answer = await services.replies.kept(str(command))
    except RedisError:
        raise busy("the store that keeps verdicts does not answer now") from None
    if answer is None:
        content = {"state": "pending", "command": str(command)}
        return JSONResponse(content, 202, {"Retry-After": "1"})
    if answer.subject != principal.subject:
        raise Problem(HTTPStatus.NOT_FOUND, "not-found", "there is no such command of yours")
    return respond(answer, request_id(request.scope))
