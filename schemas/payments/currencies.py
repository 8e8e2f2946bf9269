"""Currencies and their minor units (ISO 4217, amendment 176), and exact conversion of amounts.

Money is an integer of minor units and its currency's code. Text with a decimal point is turned
into minor units without a float and without rounding: one digit too many is an error, not a guess.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

_BY_DIGITS: Final = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
        CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL
        GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR
        LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD
        PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC
        SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR
        ZMW ZWG""",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

AMOUNT_MAX: Final = 10**15
"""Of one movement, in minor units: ten million million of a currency with two digits."""

EXPONENTS: Final = MappingProxyType(
    {code: digits for digits, codes in _BY_DIGITS.items() for code in codes.split()}
)
"""Code → digits behind the decimal point."""

_DECIMAL = re.compile(r"(-?)(\d{1,18})(?:\.(\d{1,18}))?", re.ASCII)
_RATE = re.compile(r"(\d{1,12})(?:\.(\d{1,12}))?", re.ASCII)


def minor_units(text: str, currency: str) -> int:
    """`10.05` EUR as 1005. Raises `ValueError` for an unknown currency, for what is no plain
    decimal, and for more digits than the currency has.
    """
    digits = _digits(currency)
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no decimal amount")
    sign, whole, part = match[1], match[2], match[3] or ""
    if len(part) > digits:
        raise ValueError(f"{text} has more than the {digits} decimal digits of {currency}")
    amount = int(whole + part.ljust(digits, "0"))
    return -amount if sign else amount


def decimal_text(amount: int, currency: str) -> str:
    """The inverse of `minor_units`; raises `ValueError` for an unknown currency."""
    digits = _digits(currency)
    sign, text = "-" if amount < 0 else "", str(abs(amount)).rjust(digits + 1, "0")
    return f"{sign}{text[:-digits]}.{text[-digits:]}" if digits else sign + text


def converted(amount: int, currency: str, rate: str, into: str) -> int:
    """Minor units of `into` for an amount, at `rate` units of `into` for one of `currency`;
    halves go to the even neighbour. Raises `ValueError`.
    """
    match = _RATE.fullmatch(rate)
    if match is None or not int(match[1] + (match[2] or "")):
        raise ValueError(f"{rate!r} is no positive decimal rate")
    part = match[2] or ""
    dividend = amount * int(match[1] + part) * 10 ** _digits(into)
    divisor = 10 ** (len(part) + _digits(currency))
    quotient, rest = divmod(dividend, divisor)
    up = 2 * rest > divisor or (2 * rest == divisor and quotient % 2 == 1)
    return int(quotient + up)


def _digits(currency: str) -> int:
    digits = EXPONENTS.get(currency)
    if digits is None:
        raise ValueError(f"{currency!r} is no currency of ISO 4217")
    return digits
