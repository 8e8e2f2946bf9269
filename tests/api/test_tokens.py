"""Who gets in. The server fixes key and algorithm; whatever else a token says is refused with
401, and nothing a token can hold makes a 500.
"""

from __future__ import annotations

import base64
import hmac
import json
import stat
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from api.auth import (
    MODERATE,
    READ,
    WRITE,
    InvalidToken,
    Remembered,
    Verifier,
)
from api.issuer import DevIssuer
from api.keys import BadKeySet, KeyFile, KeyUrl, parse, public_set
from tests.api.conftest import AUDIENCE, CLICK, ISSUER, client_of, problem_of

NOW = 1_800_000_000
RSA = RSAKey.generate_key(2_048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
KEYS = {"rsa": RSA, "ec": EC, "ed": ED}


class TheKeys:
    async def find(self, kid: str) -> Any:
        return KEYS.get(kid)


VERIFIER = Verifier(TheKeys(), ISSUER, AUDIENCE, now=lambda: NOW)


def claims(**more: Any) -> dict[str, Any]:
    base = {"iss": ISSUER, "aud": AUDIENCE, "sub": "me", "iat": NOW, "exp": NOW + 60}
    return {name: value for name, value in {**base, **more}.items() if value is not None}


def b64(raw: bytes | str | dict[str, Any]) -> str:
    raw = json.dumps(raw) if isinstance(raw, dict) else raw
    raw = raw.encode() if isinstance(raw, str) else raw
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(key: Any, alg: str, kid: Any, content: dict[str, Any], **header: Any) -> str:
    head = {"alg": alg, "kid": kid, **header}
    if isinstance(kid, str) and not header:
        return jwt.encode(head, content, key, algorithms=[alg])
    return b64(head) + "." + b64(content) + "." + b64(b"x" * 64)


@pytest.mark.parametrize(("kid", "alg"), [("rsa", "RS256"), ("ec", "ES256"), ("ed", "Ed25519")])
async def test_a_good_token_of_each_kind_of_key(kid: str, alg: str) -> None:
    token = signed(KEYS[kid], alg, kid, claims(scope="read events:write"))

    principal = await VERIFIER.verify(token)

    assert (principal.subject, principal.scopes) == ("me", {"read", "events:write"})


async def test_the_older_name_of_ed25519_is_accepted() -> None:
    with pytest.warns(UserWarning, match="EdDSA is deprecated"):
        token = signed(ED, "EdDSA", "ed", claims())

    assert (await VERIFIER.verify(token)).subject == "me"


def raw(header: Any, payload: Any, signature: bytes = b"") -> str:
    return f"{b64(header)}.{b64(payload)}.{b64(signature)}"


def hs256(secret: bytes) -> str:
    """By hand: the library refuses to make a symmetric key of a public one."""
    signed_part = f"{b64({'alg': 'HS256', 'kid': 'rsa'})}.{b64(claims())}"
    return f"{signed_part}.{b64(hmac.digest(secret, signed_part.encode(), 'sha256'))}"


def ed(**more: Any) -> str:
    return signed(ED, "Ed25519", "ed", claims(**more))


FORGERIES: dict[str, Callable[[], str]] = {
    "alg_none": lambda: raw({"alg": "none", "kid": "rsa"}, claims()),
    "alg_None": lambda: raw({"alg": "None", "kid": "rsa"}, claims()),
    "no_alg": lambda: raw({"kid": "rsa"}, claims()),
    "alg_is_a_list": lambda: raw({"alg": ["RS256"], "kid": "rsa"}, claims()),
    "hs256_with_public_pem": lambda: hs256(RSA.as_pem(private=False)),
    "hs256_with_public_der": lambda: hs256(RSA.as_der(private=False)),
    "other_algorithm_of_the_key": lambda: signed(RSA, "PS256", "rsa", claims()),
    "key_of_another_kid": lambda: signed(ED, "Ed25519", "ec", claims()),
    "kid_path": lambda: signed(ED, "Ed25519", "../x", claims()),
    "kid_dev_null": lambda: signed(ED, "Ed25519", "../../../../dev/null", claims()),
    "kid_sql": lambda: signed(ED, "Ed25519", "x' UNION SELECT 'k", claims()),
    "kid_missing": lambda: raw({"alg": "Ed25519"}, claims(), b"x" * 64),
    "kid_is_a_number": lambda: raw({"alg": "Ed25519", "kid": 7}, claims(), b"x" * 64),
    "kid_is_an_object": lambda: raw({"alg": "Ed25519", "kid": {}}, claims(), b"x" * 64),
    "own_key_in_header": lambda: signed(
        ED, "Ed25519", "me", claims(), jwk=ED.as_dict(private=False)
    ),
    "key_url_in_header": lambda: signed(ED, "Ed25519", "me", claims(), jku="https://evil.test/k"),
    "unknown_critical_header": lambda: signed(
        ED, "Ed25519", "ed", claims(), crit=["exp"], exp=NOW + 60
    ),
    "signature_changed": lambda: ed()[:-4] + "AAAA",
    "signature_missing": lambda: ed().rsplit(".", 1)[0] + ".",
    "payload_changed": lambda: ".".join([ed().split(".")[0], b64(claims()), ed().split(".")[2]]),
    "expired": lambda: ed(exp=NOW - 11),
    "no_exp": lambda: ed(exp=None),
    "exp_is_text": lambda: ed(exp=str(NOW + 60)),
    "exp_nan": lambda: ed(exp=float("nan")),
    "exp_infinity": lambda: ed(exp=float("inf")),
    "wrong_audience": lambda: ed(aud="other"),
    "no_audience": lambda: ed(aud=None),
    "audience_is_an_object": lambda: ed(aud={"headrace": 1}),
    "wrong_issuer": lambda: ed(iss="other"),
    "no_issuer": lambda: ed(iss=None),
    "issued_in_the_future": lambda: ed(iat=NOW + 11),
    "no_iat": lambda: ed(iat=None),
    "not_yet_valid": lambda: ed(nbf=NOW + 11),
    "no_subject": lambda: ed(sub=None),
    "empty_subject": lambda: ed(sub=""),
    "subject_is_a_number": lambda: ed(sub=7),
    "subject_with_newline": lambda: ed(sub="a\nb"),
    "scope_is_a_list": lambda: ed(scope=["read"]),
    "id_token": lambda: raw({"alg": "Ed25519", "kid": "ed", "typ": "id"}, claims(), b"x" * 64),
    "typ_is_a_number": lambda: raw({"alg": "Ed25519", "kid": "ed", "typ": 1}, {}, b"x" * 64),
    "payload_is_a_list": lambda: raw({"alg": "Ed25519", "kid": "ed"}, "[]", b"x" * 64),
    "header_is_a_list": lambda: raw("[]", claims()),
    "header_nested": lambda: raw("[" * 5_000, claims()),
    "header_digits": lambda: raw('{"alg":' + "9" * 5_000 + "}", claims()),
    "not_base64": lambda: "a.b.c",
    "not_ascii": lambda: "é.é.é",
    "two_parts": lambda: "a.b",
    "five_parts": lambda: "a.b.c.d.e",
    "empty": lambda: "",
    "2_megabytes": lambda: "e" * 2_000_000,
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_forgery_is_refused(name: str) -> None:
    token = FORGERIES[name]()

    with pytest.raises(InvalidToken):
        await VERIFIER.verify(token)


@pytest.mark.parametrize(
    "more", [{"exp": NOW - 9}, {"iat": NOW + 9}, {"nbf": NOW + 9}, {"aud": ["x", AUDIENCE]}]
)
async def test_clocks_may_differ_a_little(more: dict[str, Any]) -> None:
    assert (await VERIFIER.verify(ed(**more))).subject == "me"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic dTpw", "Bearer a.b.c", "Bearer é", "bearer\ta"],
)
async def test_a_request_without_a_good_token_is_401(app: FastAPI, header: str | None) -> None:
    headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
    async with client_of(app) as client:
        answer = await client.post("/v1/ads/events", json=CLICK, headers=headers)

    problem_of(answer, 401)
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="headrace"')
    assert ("invalid_token" in challenge) == (header in {"Bearer a.b.c", "Bearer é"})


async def test_two_authorization_headers_are_401(app: FastAPI, token: str) -> None:
    headers = [(b"authorization", f"Bearer {token}".encode())] * 2
    async with client_of(app) as client:
        problem_of(await client.get("/v1/ads/totals", headers=headers), 401)


@pytest.mark.parametrize(
    ("scopes", "status"), [([WRITE], 403), ([MODERATE], 403), ([WRITE, MODERATE], 202)]
)
async def test_a_ban_needs_the_scope_to_moderate(
    app: FastAPI, issuer: DevIssuer, scopes: list[str], status: int
) -> None:
    ban = {"type": "PlayerBanned", "player_id": "p", "reason": "cheats", "event_time": 1}
    async with client_of(app) as client:
        client.headers["Authorization"] = f"Bearer {issuer.token('me', scopes, 60)}"
        assert (await client.post("/v1/leaderboard/events", json=ban)).status_code == status
        batch = await client.post("/v1/leaderboard/events:batch", json={"events": [ban]})
        assert batch.status_code == status


def test_the_private_key_is_for_its_owner_only(issuer: DevIssuer) -> None:
    mode = stat.S_IMODE((issuer.folder / "dev.jwk").stat().st_mode)

    assert mode == 0o600
    assert '"d"' not in (issuer.folder / "jwks.json").read_text()


@pytest.mark.parametrize("ttl_s", [0, -1, 8 * 86_400])
def test_tokens_live_a_week_at_most(issuer: DevIssuer, ttl_s: int) -> None:
    with pytest.raises(ValueError, match="ttl"):
        issuer.token("me", [READ], ttl_s)


async def test_a_key_file_is_read_again_when_it_changes(tmp_path: Any) -> None:
    file = tmp_path / "jwks.json"
    keys = KeyFile(file)
    assert await keys.find("ed") is None

    file.write_text(json.dumps(public_set([ED])))
    assert await keys.find("ed") is not None
    file.write_text(json.dumps(public_set([RSA, EC])))

    assert await keys.find("ed") is None
    assert await keys.find("ec") is not None


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        '{"keys": 1}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "s"}]}',
        json.dumps(public_set([ECKey.generate_key("P-384", {"kid": "p384"})])),
        json.dumps(public_set([OKPKey.generate_key("X25519", {"kid": "x"})])),
        json.dumps(public_set([ED, ED])),
        json.dumps({"keys": [{**ED.as_dict(private=False), "kid": ""}]}),
    ],
    ids=lambda text: text[:24],
)
def test_key_set_is_refused(document: str) -> None:
    with pytest.raises(BadKeySet):
        parse(document)


@pytest.mark.filterwarnings("ignore:Key size")
def test_a_weak_rsa_key_is_refused() -> None:
    weak = RSAKey.generate_key(1_024, {"kid": "weak"})

    with pytest.raises(BadKeySet, match="2048"):
        parse(json.dumps(public_set([weak])))


async def test_an_unknown_kid_asks_the_provider_once_and_an_outage_keeps_the_keys() -> None:
    answers = [httpx.Response(200, json=public_set([ED])), httpx.Response(503)]
    asked: list[float] = []

    def provider(_request: httpx.Request) -> httpx.Response:
        asked.append(time.monotonic())
        return answers[min(len(asked), 2) - 1]

    async with httpx.AsyncClient(transport=httpx.MockTransport(provider)) as client:
        keys = KeyUrl("https://id.test/jwks", client)
        assert await keys.find("ed") is not None
        assert [await keys.find(f"unknown-{i}") for i in range(50)] == [None] * 50
        assert len(asked) == 1

        keys._asked_s = float("-inf")
        assert await keys.find("unknown") is None
        assert await keys.find("ed") is not None
        assert len(asked) == 2


async def test_keys_come_over_https_only() -> None:
    async with httpx.AsyncClient() as client:
        with pytest.raises(ValueError, match="https"):
            KeyUrl("http://id.test/jwks", client)


class Counted:
    """Keys that can be withdrawn, and how often they were asked for."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"ed": ED}
        self.asked = 0

    async def find(self, kid: str) -> Any:
        self.asked += 1
        return self.keys.get(kid)


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens whose signature was checked."""
    checked: list[str] = []
    whole = jwt.decode

    def decode(token: str, *args: Any, **more: Any) -> Any:
        checked.append(token)
        return whole(token, *args, **more)

    monkeypatch.setattr(jwt, "decode", decode)
    return checked


async def test_a_good_token_is_checked_once(signatures: list[str]) -> None:
    verifier = Verifier(Counted(), ISSUER, AUDIENCE, now=lambda: NOW)
    token = ed(scope="read")

    first, again = await verifier.verify(token), await verifier.verify(token)

    assert first == again
    assert signatures == [token]
    with pytest.raises(InvalidToken):
        await verifier.verify(token[:-1] + ("A" if token[-1] != "A" else "B"))


@pytest.mark.parametrize("of", ["exp", "clock_set_back"])
async def test_a_remembered_token_ends_with_its_time(of: str) -> None:
    now = [NOW]
    verifier = Verifier(Counted(), ISSUER, AUDIENCE, now=lambda: now[0])
    token = ed(nbf=NOW)
    await verifier.verify(token)

    now[0] += 71 if of == "exp" else -11
    with pytest.raises(InvalidToken):
        await verifier.verify(token)


async def test_a_remembered_token_ends_with_its_key() -> None:
    keys = Counted()
    verifier = Verifier(keys, ISSUER, AUDIENCE, now=lambda: NOW)
    token = ed()
    await verifier.verify(token)

    keys.keys["ed"] = OKPKey.generate_key("Ed25519", {"kid": "ed"})
    with pytest.raises(InvalidToken):
        await verifier.verify(token)
    keys.keys.clear()
    with pytest.raises(InvalidToken):
        await verifier.verify(token)


async def test_only_good_tokens_are_remembered_and_not_too_many(signatures: list[str]) -> None:
    verifier = Verifier(Counted(), ISSUER, AUDIENCE, lambda: NOW, Remembered(most=2))
    tokens = [ed(sub=f"me-{n}") for n in range(3)]
    for token in tokens:
        await verifier.verify(token)
    with pytest.raises(InvalidToken):
        await verifier.verify(ed(exp=NOW - 60))

    assert len(verifier.remembered) == 2
    signatures.clear()
    for token in reversed(tokens):
        await verifier.verify(token)
    assert signatures == [tokens[0]]
