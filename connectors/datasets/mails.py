"""Mails of the SpamAssassin corpus as conversations: who wrote to which list, when, as an answer
to what. Only headers are read; texts, names and addresses stay where they are: a person is the
digest of an address.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from email import message_from_bytes
from email.message import Message
from email.utils import parseaddr, parsedate_to_datetime
from typing import Final

PATH: Final = re.compile(r"package/data/[a-z]+-[a-z0-9-]+/[^/]+\.txt")
FIRST_MS, LAST_MS = 946_684_800_000, 1_104_537_600_000
"""2000 to 2004: what is dated outside has a broken clock."""


@dataclass(frozen=True)
class Mail:
    """One mail. `parent` is the id of the mail that it answers, "" for none."""

    id: str
    room: str
    person: str
    parent: str
    time_ms: int
    chars: int


def mails(archive: bytes) -> list[Mail]:
    """The mails of lists, by time; those without list, id, sender or a date that can be are left
    out, and of one id twice the second.
    """
    found: dict[str, Mail] = {}
    for content in _texts(archive):
        mail = _mail(message_from_bytes(content), len(content))
        if mail is not None:
            found.setdefault(mail.id, mail)
    return sorted(found.values(), key=lambda one: (one.time_ms, one.id))


def _texts(archive: bytes) -> Iterator[bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as source:
        for member in source:
            if PATH.fullmatch(member.name):
                content = source.extractfile(member)
                if content is not None:
                    yield content.read()


def _mail(message: Message, chars: int) -> Mail | None:
    id_, room = _angled(message, "Message-ID"), _angled(message, "List-Id")
    _, address = parseaddr(str(message.get("From", "")))
    time_ms = _time_ms(message)
    if not id_ or not room or not address or not FIRST_MS <= time_ms < LAST_MS:
        return None
    person = hashlib.sha256(address.lower().encode(errors="replace")).hexdigest()[:10]
    return Mail(id_, room, person, _angled(message, "In-Reply-To"), time_ms, chars)


def _angled(message: Message, header: str) -> str:
    """What stands between the first angle brackets of a header; "" without any."""
    match = re.search(r"<([^<>\s]+)>", str(message.get(header, "")))
    return match[1] if match else ""


def _time_ms(message: Message) -> int:
    """Milliseconds since 1970; -1 for a date that cannot be read."""
    try:
        time = parsedate_to_datetime(str(message.get("Date", "")))
    except (ValueError, TypeError, IndexError):
        return -1
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
