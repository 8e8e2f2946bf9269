"""Mail by SMTP (RFC 5321), over a few connections that are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from hashlib import blake2b

import aiosmtplib

from connectors.notifications.message import InvalidAddress, Message, Refused, Temporary

NO_MAILBOX = frozenset({550, 551, 553, 556})
"""Reply codes to RCPT that say that nobody is there (RFC 5321 §4.2.3)."""


class SmtpProvider:
    """One SMTP account. Messages carry their id as `Message-ID` and `X-Notification-Delivery`, so
    that a duplicate is known as one.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        sender: str,
        *,
        username: str | None = None,
        password: str | None = None,
        start_tls: bool = False,
        connections: int = 8,
        timeout_s: float = 10.0,
    ) -> None:
        """Nothing is sent before the first message."""
        self.name = name
        self._sender = sender
        self._idle: asyncio.LifoQueue[aiosmtplib.SMTP] = asyncio.LifoQueue()
        for _ in range(connections):
            self._idle.put_nowait(
                aiosmtplib.SMTP(
                    hostname=host,
                    port=port,
                    timeout=timeout_s,
                    start_tls=start_tls,
                    username=username,
                    password=password,
                )
            )

    async def send(self, message: Message) -> str:
        """As `Provider.send`."""
        mail = mime(message, self._sender)
        try:
            async with self._connection() as smtp:
                await smtp.send_message(mail, sender=self._sender, recipients=[message.address])
        except aiosmtplib.SMTPRecipientsRefused as error:
            raise _refusal(error.recipients[0]) from None
        except aiosmtplib.SMTPResponseException as error:
            raise _refusal(error) from None
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise Temporary(f"{type(error).__name__}: {error}") from None
        return str(mail["Message-ID"])

    async def close(self) -> None:
        """As `Provider.close`."""
        while not self._idle.empty():
            self._idle.get_nowait().close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[aiosmtplib.SMTP]:
        smtp = await self._idle.get()
        try:
            if not smtp.is_connected:
                await smtp.connect()
            yield smtp
        except aiosmtplib.SMTPResponseException:
            raise  # the connection is in order
        except BaseException:
            smtp.close()
            raise
        finally:
            self._idle.put_nowait(smtp)


def mime(message: Message, sender: str) -> EmailMessage:
    """The mail. Raises `Refused` where a header would not be one line."""
    mail = EmailMessage(policy=POLICY)
    try:
        mail["From"] = sender
        mail["To"] = message.address
        mail["Subject"] = message.subject
        mail["Message-ID"] = f"<{_name(message.id)}@{sender.rpartition('@')[2].rstrip('>')}>"
        mail["X-Notification-Delivery"] = message.id
    except ValueError as error:
        raise Refused(f"a header cannot be written: {error}") from None
    mail.set_content(message.text)
    if message.html:
        mail.add_alternative(message.html, subtype="html")
    return mail


def _name(id_: str) -> str:
    return blake2b(id_.encode(), digest_size=16).hexdigest()


def _refusal(
    error: aiosmtplib.SMTPResponseException,
) -> Temporary | Refused:
    reason = f"{error.code} {error.message}"
    if error.code < 500:
        return Temporary(reason)
    if isinstance(error, aiosmtplib.SMTPRecipientRefused) and error.code in NO_MAILBOX:
        return InvalidAddress(reason)
    return Refused(reason)
