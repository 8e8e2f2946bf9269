"""The adapters against real servers: SMTP and HTTP, well and badly behaved."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from connectors.notifications.http import HttpProvider
from connectors.notifications.message import InvalidAddress, Message, Refused, Temporary
from connectors.notifications.simulators.http import HttpSimulator
from connectors.notifications.simulators.smtp import SmtpSimulator
from connectors.notifications.smtp import SmtpProvider


@pytest.fixture
async def sms() -> AsyncIterator[tuple[HttpSimulator, HttpProvider]]:
    simulator = HttpSimulator()
    provider = HttpProvider("sms-a", await simulator.start(), "secret", timeout_s=0.5)
    yield simulator, provider
    await provider.close()
    await simulator.stop()


@pytest.fixture
async def mail() -> AsyncIterator[tuple[SmtpSimulator, SmtpProvider]]:
    simulator = SmtpSimulator()
    port = await simulator.start()
    provider = SmtpProvider(
        "mail-a", "127.0.0.1", port, "Shop <shop@example.org>", connections=2, timeout_s=0.5
    )
    yield simulator, provider
    await provider.close()
    await simulator.stop()


SMS = Message("n-1/sms", "sms", "+4915", "", "your code: 1 < 2 & €")
MAIL = Message("n-1/email", "email", "ada@example.org", "Größe €", "plain €", "<b>bold €</b>")


async def test_a_message_goes_over_http_with_its_id(
    sms: tuple[HttpSimulator, HttpProvider],
) -> None:
    simulator, provider = sms
    assert await provider.send(SMS)
    (taken,) = simulator.inbox.messages
    assert (taken["id"], taken["to"], taken["text"]) == (SMS.id, SMS.address, SMS.text)


@pytest.mark.parametrize(
    ("mode", "error"),
    [("down", Temporary), ("busy", Temporary), ("hang", Temporary), ("refuse", Refused)],
)
async def test_what_http_providers_say_is_understood(
    sms: tuple[HttpSimulator, HttpProvider], mode: str, error: type[Exception]
) -> None:
    simulator, provider = sms
    simulator.behaviour.change({"mode": mode, "retry_after_s": 7})
    with pytest.raises(error) as caught:
        await provider.send(SMS)
    assert type(caught.value) is error
    if isinstance(caught.value, Temporary):
        assert caught.value.after_ms == (7_000 if mode == "busy" else None)


async def test_a_device_that_is_no_more_is_told_apart(
    sms: tuple[HttpSimulator, HttpProvider],
) -> None:
    simulator, provider = sms
    simulator.behaviour.invalid = {SMS.address}
    with pytest.raises(InvalidAddress):
        await provider.send(SMS)


async def test_a_wrong_key_and_a_dead_server_are_no_answer() -> None:
    simulator = HttpSimulator("other")
    provider = HttpProvider("sms-a", await simulator.start(), "secret")
    with pytest.raises(Refused, match="401"):
        await provider.send(SMS)
    await simulator.stop()
    with pytest.raises(Temporary):
        await provider.send(SMS)
    await provider.close()


async def test_a_mail_arrives_with_both_its_texts(
    mail: tuple[SmtpSimulator, SmtpProvider],
) -> None:
    simulator, provider = mail
    first, second = await provider.send(MAIL), await provider.send(MAIL)
    assert first == second, "a duplicate has the same Message-ID"
    taken = simulator.inbox.messages[0]
    assert (taken["id"], taken["to"], taken["title"]) == (MAIL.id, MAIL.address, MAIL.subject)
    assert taken["text"].strip() == MAIL.text
    assert taken["html"].strip() == MAIL.html


@pytest.mark.parametrize(
    ("mode", "error"),
    [("down", Temporary), ("busy", Temporary), ("hang", Temporary), ("refuse", Refused)],
)
async def test_what_a_mail_server_says_is_understood_and_the_connections_stay_usable(
    mail: tuple[SmtpSimulator, SmtpProvider], mode: str, error: type[Exception]
) -> None:
    simulator, provider = mail
    for _ in range(5):
        simulator.behaviour.change({"mode": mode})
        with pytest.raises(error) as caught:
            await provider.send(MAIL)
        assert type(caught.value) is error
        simulator.behaviour.change({"mode": "ok"})
        assert await provider.send(MAIL)


async def test_a_mailbox_that_is_not_there_is_told_apart(
    mail: tuple[SmtpSimulator, SmtpProvider],
) -> None:
    simulator, provider = mail
    simulator.behaviour.invalid = {MAIL.address}
    with pytest.raises(InvalidAddress):
        await provider.send(MAIL)
    simulator.behaviour.invalid = set()
    assert await provider.send(MAIL)


async def test_a_mail_server_that_is_not_there_is_no_answer() -> None:
    provider = SmtpProvider("mail-a", "127.0.0.1", 1, "shop@example.org")
    with pytest.raises(Temporary):
        await provider.send(MAIL)
    await provider.close()
