"""A token issuer for development: an Ed25519 key made on first use.

The private key is `keys/dev.jwk` under the local folder, readable by its owner only; its public
half is `keys/jwks.json`, where the API looks by default. In production the identity provider
issues tokens and neither file exists.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import OKPKey

from api.keys import public_set

TTL_S_MAX = 7 * 86_400


class DevIssuer:
    """Issues tokens with the key in `folder`."""

    def __init__(self, folder: Path, issuer: str, audience: str) -> None:
        self.folder = folder
        self._issuer = issuer
        self._audience = audience

    def token(self, subject: str, scopes: Sequence[str], ttl_s: int) -> str:
        """A signed token. Raises `ValueError` when `ttl_s` is not in 1 .. one week."""
        if not 1 <= ttl_s <= TTL_S_MAX:
            raise ValueError(f"ttl must be 1 s to {TTL_S_MAX} s, not {ttl_s} s")
        key = self.key()
        now = int(time.time())
        claims = {
            "iss": self._issuer,
            "aud": self._audience,
            "sub": subject,
            "scope": " ".join(scopes),
            "iat": now,
            "nbf": now,
            "exp": now + ttl_s,
            "jti": secrets.token_hex(16),
        }
        header = {"alg": "Ed25519", "typ": "at+jwt", "kid": key.kid}
        return jwt.encode(header, claims, key, algorithms=["Ed25519"])

    def key(self) -> OKPKey:
        """The signing key; made, with its public set, where there is none."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.folder / "dev.jwk"
        try:
            # Exclusive and 0600 from the first byte: two starters cannot make two keys.
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            key = OKPKey.import_key(json.loads(file.read_bytes()))
        else:
            key = OKPKey.generate_key("Ed25519", {"use": "sig"}, auto_kid=True)
            with os.fdopen(handle, "w") as out:
                json.dump(key.as_dict(private=True), out)
        public = json.dumps(public_set([key]), indent=2)
        jwks = self.folder / "jwks.json"
        if not jwks.is_file() or jwks.read_text() != public:
            fresh = jwks.with_suffix(f".{os.getpid()}")
            fresh.write_text(public)
            fresh.replace(jwks)
        return key
