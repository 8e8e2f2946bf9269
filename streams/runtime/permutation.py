"""Numbers as codes that cannot be counted on from: a keyed bijection on [0, 62**chars).

Code n+1 looks unrelated to code n, every number has one code and every code one number, so codes
of distinct numbers never collide and need not be looked up. The bijection is a Feistel network
whose round function is keyed BLAKE2b, with cycle walking from the next even number of bits down
to the domain (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). It hides order
and count; it proves nothing about who made a code.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ROUNDS: Final = 8
_DIGITS: Final = {char: digit for digit, char in enumerate(ALPHABET)}


class Codes:
    """Base-62 codes of `chars` characters under a secret."""

    def __init__(self, secret: str, chars: int, purpose: str) -> None:
        """`purpose` keeps codes of one use apart from those of another under the same secret."""
        self.chars = chars
        self.size: int = len(ALPHABET) ** chars
        self._half: int = (self.size.bit_length() + 1) // 2
        self._bytes = (self._half + 7) // 8
        self._mask: int = (1 << self._half) - 1
        key = blake2b(f"{purpose}/{chars}\n{secret}".encode(), digest_size=32).digest()
        self._rounds = [blake2b(key=key, salt=bytes([n])) for n in range(ROUNDS)]

    def code(self, number: int) -> str:
        """The code of a number. Raises `ValueError` outside of [0, size)."""
        if not 0 <= number < self.size:
            raise ValueError(f"{number} has no code of {self.chars} characters")
        value = self._forth(number)
        while value >= self.size:
            value = self._forth(value)
        return _written(value, self.chars)

    def number(self, code: str) -> int:
        """The number of a code. Raises `ValueError` for a text that is none."""
        if len(code) != self.chars or not _DIGITS.keys() >= set(code):
            raise ValueError(f"not a code of {self.chars} letters and digits")
        value = 0
        for char in code:
            value = value * len(ALPHABET) + _DIGITS[char]
        value = self._back(value)
        while value >= self.size:
            value = self._back(value)
        return value

    def _forth(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for n in range(ROUNDS):
            left, right = right, left ^ self._mixed(n, right)
        return left << self._half | right

    def _back(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for n in reversed(range(ROUNDS)):
            left, right = right ^ self._mixed(n, left), left
        return left << self._half | right

    def _mixed(self, n: int, half: int) -> int:
        state = self._rounds[n].copy()
        state.update(half.to_bytes(self._bytes, "big"))
        return int.from_bytes(state.digest()[:8], "big") & self._mask


def _written(value: int, chars: int) -> str:
    text = ""
    for _ in range(chars):
        value, digit = divmod(value, len(ALPHABET))
        text = ALPHABET[digit] + text
    return text
