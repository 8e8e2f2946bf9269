"""Every error is an `application/problem+json` document (RFC 9457).

`type` is a URN that names the kind of problem and never changes, `title` and `status` belong to
it, `detail` is about this request, `instance` is the request id that is also in the response
header `X-Request-ID` and in the access log. `errors` lists what is wrong with the input, each
with a JSON `pointer` into the body or the name of a `parameter`. Input is never echoed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from connectors.encode import EncodeError
from connectors.producer import Saturated, Undelivered
from streams.runtime.sink import SinkError, SinkRejected, SinkUnavailable

MEDIA_TYPE = "application/problem+json"
ERRORS_MAX = 50
"""More errors than this are cut: one bad batch must not make a megabyte of answer."""


class InputError(BaseModel):
    """One thing that is wrong with the input."""

    detail: str
    pointer: str | None = Field(default=None, description="JSON pointer into the body.")
    parameter: str | None = Field(
        default=None, description="Name of the path, query or header field."
    )


class ProblemDocument(BaseModel):
    """The body of every error (RFC 9457)."""

    type: str = Field(examples=["urn:headrace:problem:invalid-input"])
    title: str
    status: int
    detail: str
    instance: str = Field(examples=["urn:uuid:019b0a3c-5f51-7bd2-9f8c-6f0f2f5a7c11"])
    errors: list[InputError] | None = None


class Problem(HTTPException):
    """An error answer, raised anywhere between socket and handler. `kind` ends the type URN."""

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[InputError] = (),
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.kind = kind
        self.errors = tuple(errors)

    def response(self, request_id: str) -> JSONResponse:
        """The answer."""
        document = ProblemDocument(
            type=f"urn:headrace:problem:{self.kind}",
            title=HTTPStatus(self.status_code).phrase,
            status=self.status_code,
            detail=self.detail,
            instance=f"urn:uuid:{request_id}",
            errors=list(self.errors[:ERRORS_MAX]) or None,
        )
        return JSONResponse(
            document.model_dump(exclude_none=True),
            self.status_code,
            headers=dict(self.headers or {}),
            media_type=MEDIA_TYPE,
        )


def busy(detail: str, retry_after_s: int = 1) -> Problem:
    """503: the server, not the client, has too much to do."""
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE, "busy", detail, headers={"Retry-After": str(retry_after_s)}
    )


def invalid(detail: str, *errors: InputError) -> Problem:
    """422: the request was understood, but its content is wrong."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input", detail, errors=errors)


def install(app: FastAPI) -> None:
    """Make the application answer every error with a problem document."""

    async def on_problem(request: Request, error: Exception) -> JSONResponse:
        return as_problem(error).response(request_id(request.scope))

    for kind in (
        HTTPException,
        RequestValidationError,
        EncodeError,
        Saturated,
        Undelivered,
        SinkError,
    ):
        app.add_exception_handler(kind, on_problem)


def as_problem(error: Exception) -> Problem:
    """The problem an exception stands for; 500 for what nobody foresaw."""
    match error:
        case Problem():
            found = error
        case RequestValidationError():
            errors = error.errors()
            found = invalid(
                f"{len(errors)} fields of the request are wrong",
                *(_input_error(e["loc"], e["msg"], error.body) for e in errors[:ERRORS_MAX]),
            )
        case EncodeError():
            field = InputError(detail="does not fit the schema", pointer=f"#/{error.field}")
            found = invalid(f"{error.record}.{error.field} does not fit the schema", field)
        case Saturated():
            found = busy("too many events are on their way to the log", error.retry_after_s)
        case Undelivered():
            found = busy(
                "the log did not confirm the events, so they may or may not be stored; "
                "send them again with the same ids"
            )
        case SinkUnavailable() | SinkRejected(transient=True):
            found = busy("the store behind this read does not answer now")
        case HTTPException():
            status = HTTPStatus(error.status_code)
            kind = status.phrase.lower().replace(" ", "-")
            detail = status.description or error.detail
            found = Problem(status, kind, detail, headers=error.headers)
        case _:
            found = Problem(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "internal",
                "this is our fault; the request id helps us to find it",
            )
    return found


def request_id(scope: Mapping[str, Any]) -> str:
    """The id of a request, set by the outermost middleware."""
    return str(scope.get("state", {}).get("request_id", ""))


def _input_error(location: Sequence[str | int], message: str, body: Any) -> InputError:
    where, *path = location
    if where == "body":
        return InputError(detail=message, pointer=_pointer(path, body))
    return InputError(detail=message, parameter=".".join(str(step) for step in path))


def _pointer(path: Sequence[str | int], body: Any) -> str:
    """JSON pointer (RFC 6901) into the body. Pydantic's path also names the member of a union
    that was tried; such a step is nowhere in the body and is left out.
    """
    steps, value = [], body
    for index, step in enumerate(path):
        inside = (isinstance(value, dict) and step in value) or (
            isinstance(value, list) and isinstance(step, int) and step < len(value)
        )
        if inside:
            value = value[step]
        elif index < len(path) - 1:
            continue
        steps.append(f"/{_escape(step)}")
    return "#" + "".join(steps)


def _escape(step: str | int) -> str:
    text = str(step).encode("utf-8", "replace").decode()
    return text[:80].replace("~", "~0").replace("/", "~1")


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
    }
    for status, description in {
        400: "The request cannot be meant so; `detail` says why.",
        401: "No token, or one that is not valid.",
        403: "The token lacks the scope.",
        404: "There is no such thing.",
        408: "The request did not arrive within the deadline.",
        409: "It does not go with what was decided before.",
        410: "It was there, and is not any more.",
        413: "The body is larger than allowed.",
        415: "Not JSON in UTF-8, or a compressed body.",
        422: "The input is wrong; `errors` says where.",
        429: "Too many requests of this client; see Retry-After.",
        431: "The headers are larger than allowed.",
        500: "A fault of the server.",
        503: "Too busy, or the log does not confirm; see Retry-After.",
        504: "The read model has not passed the position yet; see Retry-After.",
    }.items()
}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of these errors, besides those every route can answer with."""
    common = (401, 403, 408, 422, 429, 431, 500, 503)
    return {status: RESPONSES[status] for status in sorted({*common, *statuses})}
