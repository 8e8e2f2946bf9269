"""Pastes made and deleted, by who is signed in."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field, field_validator

from api.auth import WRITE, requires
from api.commands import VERDICT, AskedDep, ask
from api.json_route import JsonRoute
from api.models import Input
from api.problem import InputError, Problem, busy, responses
from api.services import ServicesDep
from connectors.pastes.highlighting import PLAIN, languages
from connectors.pastes.making import Making, TooLarge, Wanted
from connectors.pastes.passwords import CHARS_MAX
from schemas.pastes import events
from schemas.pastes.contents import CONTENT_BYTES_MAX, ID

TTL_S_MAX = 3_660 * 86_400


class NewPaste(Input):
    """A text to keep."""

    content: str = Field(
        min_length=1, description=f"At most {CONTENT_BYTES_MAX:,} bytes in UTF-8; else 413."
    )
    expiresIn: Annotated[int, Field(ge=1, le=TTL_S_MAX)] | None = Field(  # noqa: N815
        default=None, description="Seconds that it can be read; for ever if left out."
    )
    visibility: events.Visibility = Field(
        default="unlisted",
        description="public: listed; unlisted: for whoever has the id; private: for its owner.",
    )
    language: str = Field(
        default=PLAIN, max_length=64, description="Pygments' short name, such as `python`."
    )
    burnAfterRead: bool = Field(  # noqa: N815
        default=False, description="The first who reads it is the only one."
    )
    password: Annotated[str, Field(min_length=1, max_length=CHARS_MAX)] | None = Field(
        default=None, description="Sent with every read, as `Paste-Password`."
    )

    @field_validator("language")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in languages():
            raise ValueError("no language that can be highlighted; `text` is none")
        return name


class Made(BaseModel):
    """A paste that was made."""

    id: str
    change: str
    sha256: str
    size: int
    language: str
    visibility: str
    createdAt: int = Field(description="Milliseconds since 1970.")  # noqa: N815
    expiresAt: int | None = Field(description="Milliseconds since 1970.")  # noqa: N815
    burnAfterRead: bool  # noqa: N815
    password: bool = Field(description="Whether it takes a password to read it.")


PasteId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of the paste.")]

router = APIRouter(
    prefix="/v1/pastes",
    tags=["pastes"],
    route_class=JsonRoute,
    dependencies=[requires(WRITE)],
    responses={**VERDICT, **responses(400, 403, 409, 410, 413, 415)},
)


@router.post("", status_code=201, response_model=Made)
async def make(new: NewPaste, services: ServicesDep, asked: AskedDep) -> Response:
    """Make a paste. With an `Idempotency-Key` a repeat gets the same one.

    A paste lies where its content does, so whoever owns the key is asked first whether it stands
    for this request.
    """
    if asked.key:
        note = events.NoteKey(asked.new_id("paste"))
        noted = await ask(services, asked, events.COMMANDS, events.NOTE_KEY.name, note)
        if noted.status_code == HTTPStatus.ACCEPTED:
            raise busy("whether the key was used before cannot be told now: send it again")
        if noted.status_code != HTTPStatus.OK:
            return noted
    making: Making = services.opened("pastes-making")
    wanted = Wanted(
        content=new.content,
        owner=asked.subject,
        visibility=new.visibility,
        language=new.language,
        ttl_ms=None if new.expiresIn is None else new.expiresIn * 1_000,
        burn=new.burnAfterRead,
        password=new.password or "",
    )
    try:
        row = await making.command(wanted)
    except TooLarge:
        detail = f"a paste has at most {CONTENT_BYTES_MAX:,} bytes"
        wrong = InputError(detail=detail, pointer="#/content")
        raise Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "content-too-large", detail, errors=[wrong]
        ) from None
    return await ask(services, asked, events.COMMANDS, events.CREATE_PASTE.name, row)


@router.delete("/{paste}", response_model=Made)
async def delete(paste: PasteId, services: ServicesDep, asked: AskedDep) -> Response:
    """Delete a paste; only who made it may. From here on it is in no answer, and its content goes
    unless another paste has the same.
    """
    row = events.DeletePaste(paste, asked.subject)
    return await ask(services, asked, events.COMMANDS, events.DELETE_PASTE.name, row)
