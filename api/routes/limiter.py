"""Limiter: rules in, decisions out.

`PUT` and `DELETE` of a rule go to the log; every API process follows it, so a rule is in force
everywhere a moment later (`Headrace-After` on a read waits for this process). Both may be repeated.
`POST /v1/limiter/allow` decides for other programs, exactly as for the API's own routes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api import ingest, positions
from api.auth import LIMIT, READ, WRITE, Principal, requires
from api.ingest import Accepted
from api.json_route import JsonRoute
from api.limiter import Decision, refusal
from api.models import Id, Input, QueryInstant, Text
from api.positions import AppliedSource
from api.problem import InputError, Problem, invalid, request_id, responses
from api.reads import fresh
from api.services import ServicesDep
from schemas.limiter import events
from schemas.limiter.rules import EXACT, SLOTS_MAX, SPLIT_MAX, WINDOW_MS_MAX, BadRule, Part, Rule
from schemas.limiter.rules import Request as Asked
from sinks.limiter import HOUR_MS, Minute

SPAN_MS_MAX = 7 * 24 * HOUR_MS
COST_MAX = 1_000_000
RULES_ASKED_MAX = 8


class Weighted(Input):
    """What requests for a path cost."""

    route: Text
    units: Annotated[int, Field(ge=0, le=COST_MAX)]


class RuleInput(Input):
    """A rule, as an operator sets it."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    algorithm: Literal["TOKEN_BUCKET", "SLIDING_WINDOW"]
    limit: Annotated[int, Field(ge=1, le=EXACT, description="Units that a window admits.")]
    window_ms: Annotated[int, Field(ge=1, le=WINDOW_MS_MAX)]
    burst: Annotated[
        int, Field(ge=0, le=EXACT, description="What a full token bucket holds; 0: the limit.")
    ] = 0
    slots: Annotated[
        int, Field(ge=1, le=SLOTS_MAX, description="Parts of a sliding window; must divide it.")
    ] = 10
    route: Annotated[Text, Field(description="The path, with all below it.")] = "/"
    method: Annotated[str, Field(pattern="^[A-Z]{0,16}$", description="Empty: all.")] = ""
    per: list[Part] = Field(
        default=["PRINCIPAL"], max_length=3, description="What has a budget of its own."
    )
    mode: Literal["ENFORCE", "SHADOW"] = "ENFORCE"
    when_down: Literal["OPEN", "CLOSED"] = "OPEN"
    split: Annotated[int, Field(ge=1, le=SPLIT_MAX)] = 1
    lease_units: Annotated[int, Field(ge=0, le=EXACT)] = 0
    lease_ms: Annotated[int, Field(ge=1, le=60_000)] = 1_000
    weights: list[Weighted] = Field(default=[], max_length=100)

    def rule(self, rule_id: str) -> Rule:
        """The rule. Raises the 422 problem where its parts do not go together."""
        try:
            return Rule.of({"rule_id": rule_id, **self.model_dump()})
        except BadRule as error:
            name = to_camel(error.field)
            wrong = InputError(detail=error.reason, pointer=f"#/{name}")
            raise invalid(f"{name} {error.reason}", wrong) from None


class RuleShown(RuleInput):
    """A rule in force."""

    rule_id: str


class AllowInput(Input):
    """A question: may this happen now?"""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    rules: Annotated[
        list[Id],
        Field(min_length=1, max_length=RULES_ASKED_MAX, description="All of them must admit it."),
    ]
    key: Annotated[Id, Field(description="Who wants it: the rules' PRINCIPAL.")]
    client: Text = ""
    method: Annotated[str, Field(pattern="^[A-Z]{0,16}$")] = ""
    route: Annotated[Text | None, Field(description="The first rule's by default.")] = None
    cost: Annotated[int, Field(ge=0, le=COST_MAX)] = 1


class Allowed(BaseModel):
    """The answer, with the numbers of the tightest rule."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    allowed: bool
    degraded: bool = Field(description="The counters did not answer; the rules said what to do.")
    remaining: int | None
    reset_at: int | None = Field(description="Milliseconds since 1970: all units are back.")
    retry_after_ms: int | None = Field(description="None: now, or never.")


class MinuteShown(BaseModel):
    """What a rule decided in a minute; of a shadow, `refused` is what it would have refused."""

    start_ms: int
    shadow: bool
    admitted: int
    refused: int
    units: int


class RuleReads(AppliedSource, Protocol):
    """The rules in this process."""

    rules: Mapping[str, Rule]


class DecidedReads(AppliedSource, Protocol):
    """What was decided."""

    async def minutes(self, rule_id: str, from_ms: int, to_ms: int) -> Sequence[Minute]:
        """Minutes in which the rule was asked, ascending."""
        ...


RuleId = Annotated[Id, Path(description="The rule's name.")]
RulesDep = Annotated[RuleReads, Depends(fresh("limiter-rules", events.RULES))]
DecidedDep = Annotated[DecidedReads, Depends(fresh("limiter", events.DECISIONS))]
Operator = Annotated[Principal, requires(LIMIT)]

rules = APIRouter(
    prefix="/v1/limiter/rules", tags=["limiter"], route_class=JsonRoute, responses=responses(413)
)
_WRITTEN: dict[int | str, dict[str, Any]] = {202: {"headers": ingest.POSITION_HEADER}}
_READ: dict[int | str, dict[str, Any]] = {200: {"headers": ingest.APPLIED_HEADER}}


@rules.put("/{rule_id}", status_code=202, responses=responses(415) | _WRITTEN)
async def set_rule(
    rule_id: RuleId,
    given: RuleInput,
    response: Response,
    services: ServicesDep,
    principal: Operator,
) -> Accepted:
    """Set a rule, in place of the one of that name. Counts go on unless what they count changes."""
    row = {
        **given.rule(rule_id).row(),
        "set_by": principal.subject,
        "event_time": time.time_ns() // 1_000_000,
    }
    return await _sent(services, response, events.RULE_SET.name, row)


@rules.delete("/{rule_id}", status_code=202, responses=_WRITTEN)
async def remove_rule(
    rule_id: RuleId, response: Response, services: ServicesDep, principal: Operator
) -> Accepted:
    """Remove a rule, if there is one."""
    row = {
        "rule_id": rule_id,
        "removed_by": principal.subject,
        "event_time": time.time_ns() // 1_000_000,
    }
    return await _sent(services, response, events.RULE_REMOVED.name, row)


async def _sent(services: ServicesDep, response: Response, record: str, row: Any) -> Accepted:
    sent = await services.producer.send(events.RULES.name, record, row)
    response.headers[positions.POSITION] = positions.header([sent])
    return Accepted(id=row["rule_id"], position=ingest.place(sent))


@rules.get("", dependencies=[requires(READ)], responses=responses(504) | _READ)
async def list_rules(source: RulesDep) -> list[RuleShown]:
    """The rules in force in this process."""
    return [_shown(source.rules[rule_id]) for rule_id in sorted(source.rules)]


@rules.get("/{rule_id}", dependencies=[requires(READ)], responses=responses(404, 504) | _READ)
async def one_rule(rule_id: RuleId, source: RulesDep) -> RuleShown:
    """One rule."""
    return _shown(_known(source.rules, rule_id))


def _shown(rule: Rule) -> RuleShown:
    return RuleShown.model_validate(rule.row(), strict=False)


def _known(known: Mapping[str, Rule], rule_id: str) -> Rule:
    if rule_id not in known:
        raise Problem(HTTPStatus.NOT_FOUND, "no-such-rule", "there is no rule of that name")
    return known[rule_id]


router = APIRouter(
    prefix="/v1/limiter", tags=["limiter"], dependencies=[requires(READ)], responses=responses(504)
)


@router.get("/rules/{rule_id}/decisions", response_model=list[MinuteShown], responses=_READ)
async def decisions(
    rule_id: RuleId,
    source: DecidedDep,
    since: Annotated[QueryInstant, Query(alias="from", description="First minute.")],
    until: Annotated[QueryInstant, Query(alias="to", description="Before this.")],
) -> Sequence[Minute]:
    """What a rule decided by minute, also one that is gone; at most a week at once."""
    if not 0 < until - since <= SPAN_MS_MAX:
        detail = "the span ends after it begins and has at most seven days"
        raise invalid(detail, InputError(detail=detail, parameter="to"))
    return await source.minutes(rule_id, since, until)


allowing = APIRouter(
    prefix="/v1/limiter",
    tags=["limiter"],
    route_class=JsonRoute,
    responses=responses(404, 413, 415),
)


@allowing.post("/allow")
async def allow(
    question: AllowInput,
    request: Request,
    response: Response,
    services: ServicesDep,
    principal: Annotated[Principal, requires(WRITE)],
) -> Allowed:
    """Take the units, of all rules or of none. 429, with the same headers, where there are none."""
    if services.limiter is None:
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no-limiter", "this server has no limiter")
    known = services.limiter.book.rules
    asked = [_known(known, rule_id) for rule_id in dict.fromkeys(question.rules)]
    about = Asked(
        principal=question.key,
        client=question.client,
        method=question.method,
        route=asked[0].route if question.route is None else question.route,
        cost=question.cost,
    )
    decision = await services.limiter.decide(about, asked, request_id(request.scope))
    headers = decision.headers()
    if not decision.admitted:
        raise refusal(decision, headers)
    response.headers.update(headers)
    return _answer(decision)


def _answer(decision: Decision) -> Allowed:
    tightest = decision.tightest
    return Allowed(
        allowed=decision.admitted,
        degraded=decision.degraded,
        remaining=None if tightest is None else tightest[1].left,
        reset_at=None if tightest is None else decision.now_ms + tightest[1].reset_ms,
        retry_after_ms=decision.retry_ms,
    )
