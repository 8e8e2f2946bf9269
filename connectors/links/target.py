"""Which URLs a short link may lead to, parsed as browsers do (WHATWG URL, by Ada).

Where Ada 4.0 is behind the standard it is made up for: it takes host labels whose Punycode is
broken, and leaves `^` in paths as it is. `tests/links/test_whatwg.py` has the standard's own cases.
"""

from __future__ import annotations

from typing import Final

from ada_url import URL, idna

CHARS_MAX: Final = 2_048
SCHEMES: Final = ("http:", "https:")
PUNYCODE: Final = "xn--"


def target(text: str, own_host: str = "") -> str:
    """The URL as the standard writes it: ASCII, host in lower case and punycode, no dots to go up
    by; so it holds nothing that a header could be split with. Raises `ValueError` for what is no
    absolute http or https URL, has a name and password in it (`https://bank.example@evil.example`
    reads as the bank), or leads back to this service.
    """
    if len(text) > CHARS_MAX:
        raise ValueError(f"a URL has at most {CHARS_MAX} characters")
    try:
        url = URL(text)
    except ValueError:
        raise ValueError("not an absolute URL") from None
    if url.protocol not in SCHEMES:
        raise ValueError("only http and https can be led to")
    if not all(map(_is_label, url.hostname.split("."))):
        raise ValueError("not an absolute URL: its host is broken Punycode")
    if url.username or url.password:
        raise ValueError("a URL with a user name or a password in it is refused")
    if own_host and url.host == own_host:
        raise ValueError("a short link cannot lead to a short link")
    if "^" in url.pathname:
        url.pathname = url.pathname.replace("^", "%5E")
    if len(url.href) > CHARS_MAX:
        raise ValueError(f"a URL has at most {CHARS_MAX} characters, also as it is written out")
    return str(url.href)


def _is_label(label: str) -> bool:
    """Whether a label in Punycode is what its text is written as (UTS 46, section 4)."""
    if not label.startswith(PUNYCODE):
        return True
    try:
        text = label.removeprefix(PUNYCODE).encode().decode("punycode")
    except UnicodeError:
        return False
    return bool(idna.encode(text) == label.encode())


def host_of(referrer: str) -> str:
    """The host of the page that a `Referer` names; empty for none, or a broken one."""
    try:
        return str(URL(referrer[:CHARS_MAX]).hostname)
    except ValueError:
        return ""
