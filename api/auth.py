"""Who is asking, and may they: bearer tokens (JWT, RFC 7519; usage RFC 6750; care RFC 8725).

`Authenticate` runs before anything is read and lets nothing pass without a token but the paths
in `OPEN` and `SIGNED`, chat's page, and reads of short links and pastes. The key is chosen by
`kid` from our set and brings its algorithm; the token's own `alg` only has to agree. Checked:
signature, `iss`, `aud`, `exp`, `iat`, `nbf`, `sub`. Routes then name the scope they need with
`requires(...)`.

Checking a signature is a quarter of a request's work, so a token that was found good is remembered
by its digest (`Remembered`) and, while its key is still ours and its time has not passed, not
checked again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NoReturn

from fastapi import Request, Security
from fastapi.openapi.models import HTTPBearer as HTTPBearerModel
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase
from joserfc import jws, jwt
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import Key
from joserfc.jws import JWSRegistry
from starlette.types import ASGIApp, Receive, Scope, Send

from api.keys import Keys, algorithms_of
from api.limits import Rate
from api.problem import Problem
from schemas.links.codes import is_code

LEEWAY_S = 10
TOKEN_CHARS_MAX = 8_192
SUBJECT_CHARS_MAX = 256
REMEMBERED_MAX = 4_096
"""Good tokens that are remembered; of more, those used longest ago are checked anew."""
OPEN = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths without a token. `/metrics` has its own rule: loopback only."""

PAGE = "/v1/chat/page/"
"""Begin of the paths of chat's page, which is for everybody; all it asks for needs a token."""

BEARER = "bearer."
"""What a token follows among the subprotocols of a socket: a browser can set no header there."""

SIGNED = ("/v1/payment-webhooks", "/v1/notification-callbacks/")
"""Begins of paths whose routes check a signature over the body instead of a token."""

REDIRECT = "/{code}"
"""The route of short links: for everybody, at any path that is a code."""
REDIRECTS = "redirects"
"""Whose rate all redirects share."""

PASTES = "/v1/pastes/"
PASTE = f"{PASTES}{{paste}}"
"""Begin of routes that may be read without a token; with one, it is checked. Who reads without
shares a rate with all others who do."""

READ = "read"
WRITE = "events:write"
MODERATE = "moderate"
LEDGER = "ledger:write"
PAY = "payments:write"
LIMIT = "limits:write"
SCOPES = {
    READ: "Read every read model.",
    WRITE: "Send events.",
    MODERATE: "Send events that act against a user, such as a ban.",
    LEDGER: "Open accounts, move money between them, bring settlement files.",
    LIMIT: "Set and remove the rules of the rate limiter.",
    PAY: "Create, capture, refund and void payments.",
}


@dataclass(frozen=True)
class Principal:
    """Whoever a token speaks for."""

    subject: str
    scopes: frozenset[str]


class InvalidToken(ValueError):
    """The token proves nothing. The reason is for the client, so it holds nothing of the token."""


@dataclass(frozen=True, slots=True)
class _Good:
    """A token that was checked with `key`; it says nothing outside of `[since_s, until_s)`."""

    principal: Principal
    kid: str
    key: Key
    since_s: float
    until_s: float


class Remembered:
    """Tokens found good, by their digests, so that none can be read from memory."""

    def __init__(self, most: int = REMEMBERED_MAX) -> None:
        self._most = most
        self._good: OrderedDict[bytes, _Good] = OrderedDict()

    def __len__(self) -> int:
        return len(self._good)

    def get(self, digest: bytes) -> _Good | None:
        """What is remembered of a token."""
        found = self._good.get(digest)
        if found is not None:
            self._good.move_to_end(digest)
        return found

    def keep(self, digest: bytes, good: _Good) -> None:
        """Remember a token, and forget the one used longest ago if there are too many."""
        self._good[digest] = good
        if len(self._good) > self._most:
            self._good.popitem(last=False)

    def forget(self, digest: bytes) -> None:
        """It has to be checked again."""
        self._good.pop(digest, None)


@dataclass(frozen=True)
class Verifier:
    """Checks tokens of one issuer for one audience."""

    keys: Keys
    issuer: str
    audience: str
    now: Callable[[], float] = field(default=time.time)
    remembered: Remembered = field(default_factory=Remembered)

    async def verify(self, token: str) -> Principal:
        """The principal of a token. Raises `InvalidToken`, and nothing else for any text."""
        if len(token) > TOKEN_CHARS_MAX:
            raise InvalidToken("the token is too long")
        digest = hashlib.sha256(token.encode(errors="surrogatepass")).digest()
        known = self.remembered.get(digest)
        if known is not None:
            # A key that was withdrawn or replaced takes its tokens with it, at once.
            same_key = await self.keys.find(known.kid) is known.key
            if same_key and known.since_s <= int(self.now()) < known.until_s:
                return known.principal
            self.remembered.forget(digest)
        try:
            good = await self._verify(token)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            if isinstance(error, InvalidToken):
                raise
            raise InvalidToken(f"the token is refused: {type(error).__name__}") from None
        self.remembered.keep(digest, good)
        return good.principal

    async def _verify(self, token: str) -> _Good:
        header = jws.extract_compact(token.encode("ascii")).headers()
        kid = header.get("kid")
        if not isinstance(kid, str):
            raise InvalidToken("the token names no key (kid)")
        key = await self.keys.find(kid)
        if key is None:
            raise InvalidToken("the token names a key that is not ours")
        if str(header.get("typ", "JWT")).lower() not in {"jwt", "at+jwt"}:
            raise InvalidToken("this is not an access token (typ)")
        registry = _OnlyThese(algorithms=algorithms_of(key))
        decoded = jwt.decode(token, key, registry=registry, decoder_cls=_Decoder)
        claims = decoded.claims
        self._registry().validate(claims)
        since_s = max(claims["iat"], claims.get("nbf") or 0) - LEEWAY_S
        return _Good(_principal(claims), kid, key, since_s, claims["exp"] + LEEWAY_S)

    def _registry(self) -> jwt.JWTClaimsRegistry:
        return jwt.JWTClaimsRegistry(
            now=int(self.now()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.audience},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
        )


class _OnlyThese(JWSRegistry):
    """The algorithms of one key. (The library's own look-up also warns of EdDSA, the older name
    of Ed25519, RFC 9864, which most issuers still write.)
    """

    def get_alg(self, name: str) -> Any:
        if name not in (self.allowed or ()):
            raise UnsupportedAlgorithmError(f"not an algorithm of this key: {name!r}")
        return self.algorithms[name]


class _Decoder(json.JSONDecoder):
    """NaN compares false with everything: as `exp` it would never expire."""

    def __init__(self) -> None:
        super().__init__(parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> NoReturn:
    raise InvalidToken(f"{name} is no claim")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse("Infinity")


def _principal(claims: Mapping[str, Any]) -> Principal:
    subject, scope = claims["sub"], claims.get("scope", "")
    if not 0 < len(subject) <= SUBJECT_CHARS_MAX or not subject.isprintable():
        raise InvalidToken("the subject is empty, too long or not printable")
    if not isinstance(scope, str):
        raise InvalidToken("scope must be one text with spaces (RFC 8693)")
    return Principal(subject, frozenset(scope.split()))


class Authenticate:
    """Puts the principal into the request's scope, or answers 401; then takes from its rate."""

    def __init__(self, app: ASGIApp, verifier: Callable[[], Verifier], rate: Rate) -> None:
        self._app = app
        self._verifier = verifier
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            principal = await self._authenticate(scope)
            self._rate.take(principal.subject)
            scope["state"]["principal"] = principal
        elif scope["type"] == "http":
            if scope["path"] in OPEN:
                scope["state"]["exempt"] = True
            elif scope["path"].startswith(PAGE):
                self._rate.take(PAGE)
            elif scope["path"].startswith(SIGNED):
                self._rate.take(scope["path"])
            elif scope["method"] in {"GET", "HEAD"} and is_code(scope["path"][1:]):
                self._rate.take(REDIRECTS)
            elif _anonymous(scope):
                self._rate.take(PASTE)
            else:
                principal = await self._authenticate(scope)
                self._rate.take(principal.subject)
                scope["state"]["principal"] = principal
        await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> Principal:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        offered = [one for one in scope.get("subprotocols", ()) if one.startswith(BEARER)]
        given += [f"Bearer {one.removeprefix(BEARER)}".encode() for one in offered]
        if len(given) != 1:
            raise unauthorized("send one Authorization header with a bearer token")
        kind, _, token = given[0].decode("latin-1").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise unauthorized("send Authorization: Bearer <token>")
        try:
            return await self._verifier().verify(token.strip())
        except InvalidToken as error:
            raise unauthorized(str(error), code="invalid_token") from None


def _anonymous(scope: Scope) -> bool:
    """Whether the request needs no token and has none."""
    path: str = scope["path"]
    return (
        scope["method"] == "GET"
        and path.startswith(PASTES)
        and path != f"{PASTES}mine"
        and all(name != b"authorization" for name, _ in scope["headers"])
    )


def unauthorized(detail: str, code: str | None = None) -> Problem:
    """401 with the challenge of RFC 6750: no error code where no token was sent."""
    challenge = 'Bearer realm="headrace"'
    if code is not None:
        challenge += f', error="{code}"'
    return Problem(
        HTTPStatus.UNAUTHORIZED, "unauthorized", detail, headers={"WWW-Authenticate": challenge}
    )


class _Bearer(SecurityBase):
    """Dependency: the principal, who has all scopes the route names; else 403. It is also what the
    OpenAPI document says about tokens: one dependency for both, since each is paid per request.
    """

    scheme_name = "bearer"
    model = HTTPBearerModel(
        bearerFormat="JWT",
        description="A JWT of the configured issuer; for development: `headrace token`. Scopes: "
        + " ".join(f"`{name}`: {meaning}" for name, meaning in SCOPES.items()),
    )

    async def __call__(self, request: Request, scopes: SecurityScopes) -> Principal:
        principal: Principal = request.scope["state"]["principal"]
        require(principal, *scopes.scopes)
        return principal


_bearer = _Bearer()


def require(principal: Principal, *scopes: str) -> None:
    """Raise the 403 problem unless the principal has all scopes."""
    missing = [scope for scope in scopes if scope not in principal.scopes]
    if missing:
        wanted = " ".join(scopes)
        raise Problem(
            HTTPStatus.FORBIDDEN,
            "forbidden",
            f"the token lacks the scope {' '.join(missing)}",
            headers={
                "WWW-Authenticate": f'Bearer realm="headrace", error="insufficient_scope", '
                f'scope="{wanted}"'
            },
        )


def requires(*scopes: str) -> Any:
    """Route dependency that asks for scopes."""
    return Security(_bearer, scopes=list(scopes))
