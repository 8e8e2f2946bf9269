"""A mail server that takes mail and shows it to nobody; misbehaves when told to."""

from __future__ import annotations

import asyncio
from email import message_from_bytes, policy

from aiosmtpd.smtp import SMTP, Envelope, Session

from connectors.notifications.simulators.behaviour import Behaviour, Inbox

_REPLIES = {
    "down": "451 internal error",
    "busy": "421 try later",
    "refuse": "554 refused",
}


class SmtpSimulator:
    """The server, in the running event loop."""

    def __init__(self, inbox: Inbox | None = None) -> None:
        self.inbox = inbox or Inbox()
        self.behaviour = Behaviour()
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        """Listen on loopback; returns the port."""
        loop = asyncio.get_running_loop()

        def session() -> SMTP:
            return SMTP(self, enable_SMTPUTF8=True, hostname="simulator", loop=loop)

        self._server = await loop.create_server(session, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    # The names below are those that aiosmtpd calls.

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Nobody is there, or the recipient is noted."""
        if address in self.behaviour.invalid:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Take the mail, or behave as told."""
        mode = self.behaviour.mode
        if mode in _REPLIES:
            return _REPLIES[mode]
        mail = message_from_bytes(envelope.content or b"", policy=policy.default)  # type: ignore[arg-type]
        parts = {part.get_content_type(): part.get_content() for part in mail.walk()
                 if not part.is_multipart()}  # fmt: skip
        self.inbox.put(
            id=str(mail["X-Notification-Delivery"]),
            to=envelope.rcpt_tos[0],
            title=str(mail["Subject"]),
            text=parts.get("text/plain", ""),
            html=parts.get("text/html", ""),
            headers=[name for name, _ in mail.items()],
        )
        if mode == "hang":
            await asyncio.sleep(3_600)
        return "250 taken"
