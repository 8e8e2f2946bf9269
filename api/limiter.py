"""The rate limiter in front of the API's own routes, and behind `POST /v1/limiter/allow`.

`Limit` stands behind `Authenticate` and before the body is read: it knows the principal, and a
refused request costs nothing more. Without rules it is one look into an empty dictionary. When the
counters do not answer within the timeout, or have not for a while (a breaker), each rule says what
becomes of the request: OPEN lets it through, CLOSED answers 503. The routes under `/v1/limiter` are
never limited, so that a wrong rule can be taken back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil
from typing import Any

import structlog
from prometheus_client import Counter
from redis.exceptions import RedisError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problem import Problem, request_id
from connectors.limiter.decisions import DecisionLog
from connectors.limiter.rulebook import Rulebook
from schemas.limiter.rules import NOBODY, Request, Rule
from sinks.limiter.counters import Ask, Taken, Verdict
from sinks.limiter.leases import Leases
from streams.runtime.reactor.breaker import Breakers
from streams.runtime.reactor.rules import Breaker
from streams.runtime.settings import Limiter as LimiterSettings

COUNTERS = "counters"
OWN_ROUTES = "/v1/limiter/"
RETRY_AFTER_S = 1
"""Of a request that is refused because the counters are away."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Decision:
    """What became of a request. `verdicts` (in the order of `asks`) are empty where the counters
    were not asked or did not answer (`degraded`).
    """

    admitted: bool
    degraded: bool
    now_ms: int
    asks: tuple[Ask, ...]
    verdicts: tuple[Verdict, ...] = ()

    @property
    def enforced(self) -> list[tuple[Ask, Verdict]]:
        """What was said by rules that may refuse."""
        pairs = zip(self.asks, self.verdicts, strict=False)
        return [(ask, verdict) for ask, verdict in pairs if not ask.rule.shadow]

    @property
    def tightest(self) -> tuple[Ask, Verdict] | None:
        """The rule that a client should heed: one that refuses, else the one with least left."""
        return min(self.enforced, key=_tightness, default=None)

    @property
    def retry_ms(self) -> int | None:
        """When all rules could admit it; None: now, or never."""
        waits = [verdict.retry_ms for _, verdict in self.enforced if not verdict.admits]
        return max(waits) if waits and min(waits) > 0 else None

    def headers(self) -> dict[str, str]:
        """`RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10), their
        older `X-` forms, and `Retry-After` where it makes sense.
        """
        if self.degraded:
            return {} if self.admitted else {"Retry-After": str(RETRY_AFTER_S)}
        if self.tightest is None:
            return {}
        ask, verdict = self.tightest
        name, reset_s = _quoted(ask.rule.rule_id), ceil(verdict.reset_ms / 1_000)
        window_s = ceil(ask.rule.window_ms / 1_000)
        made = {
            "RateLimit-Policy": f"{name};q={ask.rule.limit};w={window_s}",
            "RateLimit": f"{name};r={verdict.left};t={reset_s}",
            "X-RateLimit-Limit": str(ask.rule.limit),
            "X-RateLimit-Remaining": str(verdict.left),
            "X-RateLimit-Reset": str(reset_s),
        }
        if self.retry_ms is not None:
            made["Retry-After"] = str(ceil(self.retry_ms / 1_000))
        return made


def _tightness(pair: tuple[Ask, Verdict]) -> tuple[bool, int]:
    return pair[1].admits, pair[1].left


def _quoted(name: str) -> str:
    """A string of RFC 8941, which has ASCII only."""
    text = name.encode("ascii", "replace").decode()
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Limiter:
    """Decides by the rules of `book`, and logs what it decided."""

    def __init__(
        self,
        book: Rulebook,
        counters: Leases,
        decisions: DecisionLog,
        settings: LimiterSettings,
        decided: Counter,
    ) -> None:
        """`decided` has the label `outcome`."""
        self.book = book
        self._counters = counters
        self._decisions = decisions
        self._timeout_s = settings.timeout_ms / 1_000
        self._decided = decided
        self._breakers = Breakers(
            Breaker(
                failures=settings.breaker_failures,
                open_ms=settings.breaker_open_ms,
                open_ms_max=8 * settings.breaker_open_ms,
            )
        )

    async def decide(self, request: Request, rules: Sequence[Rule], id_: str) -> Decision:
        """Decide, count and log. Raises nothing for counters that are away."""
        asks = tuple(Ask(r, r.key(request), r.units(request)) for r in rules)
        taken = await self._asked(asks)
        if taken is None:
            admitted = not any(r.when_down == "CLOSED" and not r.shadow for r in rules)
            decision = Decision(admitted, True, time.time_ns() // 1_000_000, asks)
        else:
            decision = Decision(taken.admitted, False, taken.now_ms, asks, taken.verdicts)
        self._decided.labels(_outcome(decision)).inc()
        self._decisions.add(_row(request, decision, id_))
        return decision

    async def _asked(self, asks: Sequence[Ask]) -> Taken | None:
        """What the counters say; None where they do not."""
        now_ms = round(time.monotonic() * 1_000)
        if self._breakers.wait_ms(COUNTERS, now_ms):
            return None
        probe = self._breakers.begin(COUNTERS)
        try:
            async with asyncio.timeout(self._timeout_s):
                taken = await self._counters.take(asks)
        except (RedisError, OSError, TimeoutError) as error:
            self._breakers.failed(COUNTERS, round(time.monotonic() * 1_000), probe=probe)
            log.warning("the counters of the limiter do not answer", error=repr(error))
            return None
        except BaseException:
            self._breakers.undecided(COUNTERS, probe=probe)
            raise
        self._breakers.succeeded(COUNTERS, probe=probe)
        return taken


def _outcome(decision: Decision) -> str:
    if decision.degraded:
        return "open" if decision.admitted else "closed"
    return "admitted" if decision.admitted else "refused"


def _row(request: Request, decision: Decision, id_: str) -> dict[str, Any]:
    """The `RequestDecided` of a decision."""
    verdicts = [
        {
            "rule_id": ask.rule.rule_id,
            "key": ask.key,
            "units": ask.units,
            "admitted": verdict.admits,
            "charged": verdict.charged > 0,
            "shadow": ask.rule.shadow,
        }
        for ask, verdict in zip(decision.asks, decision.verdicts, strict=False)
    ]
    return {
        "request_id": id_,
        "principal": request.principal,
        "client": request.client,
        "method": request.method,
        "route": request.route,
        "cost": request.cost,
        "admitted": decision.admitted,
        "degraded": decision.degraded,
        "verdicts": verdicts,
        "event_time": decision.now_ms,
    }


class Limit:
    """Asks the limiter about every request that a rule is for."""

    def __init__(self, app: ASGIApp, limiter: Callable[[], Limiter | None]) -> None:
        self._app = app
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As every ASGI application. Raises the 429 and 503 problems."""
        decision = await self._decision(scope)
        if decision is None:
            await self._app(scope, receive, send)
            return
        headers = decision.headers()
        if not decision.admitted:
            raise refusal(decision, headers)
        encoded = [(k.lower().encode(), v.encode()) for k, v in headers.items()]

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *encoded]}
            await send(message)

        await self._app(scope, receive, send_with)

    async def _decision(self, scope: Scope) -> Decision | None:
        limiter = self._limiter() if scope["type"] == "http" else None
        if limiter is None or not limiter.book.rules:
            return None
        state = scope.get("state", {})
        if state.get("exempt") or scope["path"].startswith(OWN_ROUTES):
            return None
        principal = state.get("principal")
        request = Request(
            principal=principal.subject if principal is not None else NOBODY,
            client=(scope.get("client") or ("",))[0],
            method=scope["method"],
            route=scope["path"],
        )
        rules = limiter.book.about(request)
        return await limiter.decide(request, rules, request_id(scope)) if rules else None


def refusal(decision: Decision, headers: Mapping[str, str]) -> Problem:
    """429 where a rule refuses, 503 where the counters are away and a rule is CLOSED then."""
    if decision.degraded:
        return Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "limiter-away",
            "the rate limiter cannot be asked now, and this route is closed without it",
            headers=headers,
        )
    names = [ask.rule.rule_id for ask, verdict in decision.enforced if not verdict.admits]
    return Problem(
        HTTPStatus.TOO_MANY_REQUESTS,
        "rate-limited",
        f"no units are left by the rule {', '.join(names)}",
        headers=headers,
    )
