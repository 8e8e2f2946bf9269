"""Card numbers, to be recognised and refused: this system never holds one (PCI DSS 3.4)."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)", re.ASCII)


def holds_card_number(text: str) -> bool:
    """Whether 13 to 19 digits in the text pass the check of card numbers (Luhn, ISO/IEC 7812)."""
    return any(_luhn(re.sub(r"[ -]", "", found)) for found in _DIGITS.findall(text))


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        doubled = int(digit) * (1 + place % 2)
        total += doubled - 9 if doubled > 9 else doubled
    return total % 10 == 0
