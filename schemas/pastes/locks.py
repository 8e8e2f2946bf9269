"""How the password of a paste is checked, without keeping it or writing it to the log.

A lock is `scrypt:<salt>:<verifier>`. The password and the salt lead to a proof (scrypt, RFC 7914,
at the edge), and the proof's SHA-256 is the verifier; so a decider compares two digests and never
sees a password, and who reads the log has to try passwords, slowly.
"""

from __future__ import annotations

import hashlib
import hmac

OPEN = ""
"""The lock of a paste without a password."""


def lock(salt: str, proof: str) -> str:
    """The lock that this proof fits; both are hexadecimal."""
    return f"scrypt:{salt}:{_verifier(proof)}"


def salt_of(lock: str) -> str:
    """The salt in a lock that is not `OPEN`."""
    return lock.split(":")[1]


def fits(lock: str, proof: str) -> bool:
    """Whether the proof fits; any does where there is no lock."""
    return lock == OPEN or hmac.compare_digest(lock.split(":")[2], _verifier(proof))


def _verifier(proof: str) -> str:
    return hashlib.sha256(proof.encode()).hexdigest()
