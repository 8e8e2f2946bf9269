"""Settlement files: taken in and booked, and compared with our own operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from api import ingest
from api.auth import LEDGER, READ, requires
from api.commands import AskedDep, ask
from api.positions import AppliedSource
from api.problem import Problem, busy, invalid, responses
from api.reads import fresh
from api.routes.payments.models import BookPath, FilePath
from api.services import ServicesDep
from connectors.payments.settlement_file import BadFile, parse
from schemas.payments import events
from schemas.payments.currencies import AMOUNT_MAX
from sinks.payments import payments as store
from sinks.payments.reconciliation import STATUSES, Finding, Status, Tariff

CHUNK_LINES = 500


class SettlementReads(AppliedSource, Protocol):
    """What the read routes ask; `sinks.payments.payments.PaymentReader` answers."""

    async def files(self, book: str) -> Sequence[store.SettlementFile]:
        """The settlement files of a book, the newest first."""
        ...

    async def reconciliation(
        self, book: str, file_id: str, tariff: Tariff | None
    ) -> Sequence[Finding] | None:
        """One file against our operations; None where there is no such file."""
        ...


class Taken(BaseModel):
    """What came of a file."""

    file_id: str
    lines: int
    parts: int = Field(description="Parts the file was cut into.")
    new: int = Field(description="Parts that were booked now; the others were before.")


class Report(BaseModel):
    """A file against our operations."""

    file_id: str
    counts: Mapping[Status, int]
    findings: list[Finding] = Field(description="All but the matched ones, or all.")


writes = APIRouter(
    prefix="/v1/books/{book}/settlements",
    tags=["payments"],
    dependencies=[requires(LEDGER)],
    responses=responses(400, 403, 404, 409, 413, 422),
)
ReadsDep = Annotated[SettlementReads, Depends(fresh("payments", events.EVENTS))]


@writes.post("", openapi_extra={"requestBody": {"content": {"text/csv": {}}, "required": True}})
async def take(book: BookPath, request: Request, services: ServicesDep, asked: AskedDep) -> Taken:
    """Take in a provider's settlement file (CSV) and book it. To send it again is harmless: each
    part of a file is booked once, so a file that stopped half-way is just sent again.
    """
    try:
        file = parse(await request.body())
    except BadFile as error:
        raise invalid(str(error)) from None
    # The key would be the same for all parts; they have names of their own.
    asked = replace(asked, key="")
    new = parts = 0
    for at in range(0, len(file.lines), CHUNK_LINES):
        row = events.RecordSettlement(
            book=book,
            file_id=file.file_id,
            chunk=at // CHUNK_LINES,
            period_from=file.period_from_ms,
            period_to=file.period_to_ms,
            lines=list(file.lines[at : at + CHUNK_LINES]),
        )
        verdict = await ask(services, asked, events.COMMANDS, events.RECORD_SETTLEMENT.name, row)
        parts += 1
        if verdict.status_code == HTTPStatus.CREATED:
            new += 1
        elif verdict.status_code == HTTPStatus.ACCEPTED:
            raise busy("not all of the file is booked yet; send it again")
        elif verdict.status_code != HTTPStatus.CONFLICT:
            raise Problem(HTTPStatus(verdict.status_code), "refused", bytes(verdict.body).decode())
    return Taken(file_id=file.file_id, lines=len(file.lines), parts=parts, new=new)


router = APIRouter(
    prefix="/v1/books/{book}/settlements",
    tags=["payments"],
    dependencies=[requires(READ)],
    responses={**responses(404, 504), 200: {"headers": ingest.APPLIED_HEADER}},
)


async def tariff(
    share_bp: Annotated[
        int | None, Query(ge=0, le=10_000, description="Agreed fee: hundredths of a percent.")
    ] = None,
    fixed: Annotated[int, Query(ge=0, le=AMOUNT_MAX, description="Agreed fee: minor units.")] = 0,
) -> Tariff | None:
    """Dependency: what the provider may keep; without it fees are not compared."""
    return None if share_bp is None else Tariff(share_bp, fixed)


@router.get("", response_model=list[store.SettlementFile])
async def files(book: BookPath, source: ReadsDep) -> Sequence[store.SettlementFile]:
    """The settlement files of a book, the newest first."""
    return await source.files(book)


@router.get("/{file_id}/report")
async def report(
    book: BookPath,
    file_id: FilePath,
    source: ReadsDep,
    agreed: Annotated[Tariff | None, Depends(tariff)],
    show: Annotated[Literal["all", "open"], Query(description="With the matched ones?")] = "open",
) -> Report:
    """A settlement file against our operations: matched, differing, missing here or there. Made
    anew at each call, of what is known then.
    """
    found = await source.reconciliation(book, file_id, agreed)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-file", "there is no such settlement file")
    counts = Counter(finding.status for finding in found)
    shown = [one for one in found if show == "all" or one.status != "matched"]
    return Report(file_id=file_id, counts={name: counts[name] for name in STATUSES}, findings=shown)
