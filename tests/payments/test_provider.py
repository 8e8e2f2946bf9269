"""The provider, its webhooks and files: adapter, reactor and pretended provider together."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from aiohttp.test_utils import TestServer

from connectors.payments.psp import Asked, HttpProvider, NoAnswer, NotTaken, Told, report_of
from connectors.payments.settings import PspSettings
from connectors.payments.simulator.book import Behaviour, Delivery, Operations
from connectors.payments.simulator.server import Simulator
from schemas.payments.events import PAYMENT_CHANGED, PaymentChanged
from streams.payments.reactors import OLD_MS, AskProvider
from streams.runtime.decider.rules import Rejected
from streams.runtime.reactor.rules import Retry, Task
from tests.payments.desk import DAY, opened, sums
from tests.payments.test_payments import CapturePayment, RefundPayment, payment, told

SECRET = "whsec_ZGV2ZWxvcG1lbnQ="
ASKED = Asked("main.p.auth", "main.p", "authorize", "EUR", 4_200, "tok_visa")
FLAWLESS = Behaviour(*(0 for _ in Behaviour.__dataclass_fields__))


@dataclass
class Direct:
    """The pretended provider without HTTP; a lost request is no answer."""

    operations: Operations
    now: int = 0
    looked: list[str] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)

    async def perform(self, asked: Asked) -> Told:
        answer, deliveries = self.operations.receive(asked, self.now)
        self.deliveries += deliveries
        if answer is None:
            raise NoAnswer("lost")
        return answer

    async def look(self, reference: str) -> Told | None:
        self.looked.append(reference)
        return self.operations.look(reference)


def task(row: PaymentChanged, **fields: Any) -> Task:
    """The event as a reactor gets it."""
    made: dict[str, Any] = {
        "id": "t/0/1",
        "record": PAYMENT_CHANGED.fullname,
        "row": row,
        "key": row.book,
        "partition": 0,
        "offset": 1,
        "time_ms": row.recorded_at,
        "attempt": 1,
    }
    return Task(**{**made, **fields})


class Loop:
    """A desk, the reactor and the pretended provider, with webhooks in any order."""

    def __init__(self, seed: int, behaviour: Behaviour) -> None:
        self.chance = random.Random(seed)
        self.desk = opened()
        self.provider = Direct(Operations(seed, behaviour))
        self.reactor = AskProvider(self.provider, lambda: self.desk.now)
        self.acted = 0

    def send(self, command: Any) -> None:
        with suppress(Rejected):
            self.desk.send(command)
        self.settle()

    def settle(self) -> None:
        """Let the reactor act on what is new, sometimes twice, as after a crash."""
        while self.acted < len(self.desk.log):
            time_ms, row = self.desk.log[self.acted]
            self.acted += 1
            if not isinstance(row, PaymentChanged):
                continue
            if self.reactor.route(PAYMENT_CHANGED.fullname, row) is None:
                continue
            for attempt in range(1, 1 + self.chance.choice([1, 1, 1, 2])):
                self._tell(run(self.reactor.act(task(row, time_ms=time_ms, attempt=attempt))))

    def webhooks(self) -> None:
        """All webhooks that are on their way, shuffled and some of them again."""
        waiting, self.provider.deliveries = self.provider.deliveries, []
        waiting += self.chance.choices(waiting, k=len(waiting) // 3) if waiting else []
        self.chance.shuffle(waiting)
        for delivery in waiting:
            self._tell(report_of(delivery.told, "webhook"))
        self.settle()

    def wait(self, by_ms: int) -> None:
        self.desk.advance(by_ms)
        self.settle()

    def _tell(self, report: Any) -> None:
        if report is None:
            return
        try:
            self.desk.send(report)
        except Rejected as rejected:
            assert rejected.code == "stale"


def run(waited: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(waited)


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_charged_twice_and_nothing_stays_open(seed: int) -> None:
    """Declines, late outcomes, lost requests and answers, reactors that act twice."""
    loop = Loop(seed, Behaviour(lost_before=15, lost_after=15, pending=30))
    names = [f"main.p{n}" for n in range(60)]
    for name in names:
        capture = loop.chance.choice(["automatic", "manual"])
        loop.send(payment(payment_id=name, capture=capture))
        if loop.chance.random() < 0.3:
            loop.webhooks()
    loop.webhooks()
    loop.wait(DAY)
    for name in names:
        for n in range(2):
            amount = loop.chance.randint(1, 2_000)
            loop.send(CapturePayment("main", name, f"{name}.c{n}", amount))
            loop.send(RefundPayment("main", name, f"{name}.r{n}", amount // 2 + 1))
    loop.webhooks()
    loop.wait(DAY)
    operations = loop.provider.operations
    done: Counter[str] = Counter()
    for asked, answer, _ in operations.known.values():
        done[asked.kind] += answer.amount if answer.status == "succeeded" else 0
    assert loop.desk.balance("$psp:EUR") == done["refund"] - done["capture"]
    assert not any(sums(loop.desk.log).values())
    open_ = [
        operation
        for found in loop.desk.state["payments"].values()
        for operation in found.operations
        if operation.status in ("requested", "unknown")
    ]
    assert open_ == []
    assert max(operations.calls.values()) > 1, "some were called for again"
    assert len(operations.known) > 150


class TestReactor:
    def asking(self, **fields: Any) -> PaymentChanged:
        row = opened().send(payment(**fields))
        assert isinstance(row, PaymentChanged)
        return row

    def test_the_first_call_does_not_look(self) -> None:
        row, provider = self.asking(), Direct(Operations(0, FLAWLESS))
        report = run(AskProvider(provider, lambda: row.recorded_at).act(task(row)))
        assert (report.status, provider.looked) == ("succeeded", [])

    @pytest.mark.parametrize("fields", [{"attempt": 2}, {"redrives": 1}, {"time_ms": 0}])
    def test_what_may_have_been_sent_is_looked_for_first(self, fields: dict[str, int]) -> None:
        row, provider = self.asking(), Direct(Operations(0, FLAWLESS))
        reactor = AskProvider(provider, lambda: row.recorded_at + OLD_MS)
        first = run(reactor.act(task(row)))
        again = run(reactor.act(task(row, **fields)))
        assert first.psp_reference == again.psp_reference
        assert provider.looked == ["main.p.auth"]
        assert provider.operations.calls == {"main.p.auth": 1}

    def test_no_answer_is_unknown(self) -> None:
        row = self.asking()
        provider = Direct(Operations(0, Behaviour(lost_before=100)))
        report = run(AskProvider(provider, lambda: row.recorded_at).act(task(row)))
        assert (report.status, report.amount) == ("unknown", None)

    def test_not_taken_is_tried_again(self) -> None:
        row = self.asking()

        class Busy(Direct):
            async def perform(self, asked: Asked) -> Told:
                raise NotTaken("429", 2_000)

        reactor = AskProvider(Busy(Operations()), lambda: row.recorded_at)
        with pytest.raises(Retry) as raised:
            run(reactor.act(task(row)))
        assert raised.value.after_ms == 2_000
        gave_up = reactor.gave_up(task(row), "at last")
        assert gave_up is not None
        assert gave_up.status == "unknown"

    def test_only_what_asks_is_routed(self) -> None:
        desk = opened()
        desk.send(payment())
        quiet = desk.send(told("auth"))
        reactor = AskProvider(Direct(Operations()), lambda: 0)
        assert reactor.route(PAYMENT_CHANGED.fullname, quiet) is None
        assert reactor.route(PAYMENT_CHANGED.fullname, self.asking()) is not None


class TestHttp:
    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (httpx.Response(500), NoAnswer),
            (httpx.Response(504), NoAnswer),
            (httpx.Response(200, content=b"{"), NoAnswer),
            (httpx.Response(200, content=b"\xff"), NoAnswer),
            (httpx.Response(200, json={"reference": "x"}), NoAnswer),
            (httpx.Response(429, headers={"Retry-After": "7"}), NotTaken),
            (httpx.Response(503, headers={"Retry-After": b"\xe9"}), NotTaken),
            (httpx.Response(401), NotTaken),
            (httpx.Response(302, headers={"Location": "http://127.0.0.1"}), NotTaken),
            (httpx.ReadTimeout("slow"), NoAnswer),
            (httpx.ReadError("reset"), NoAnswer),
            (httpx.ConnectError("refused"), NotTaken),
        ],
    )
    def test_what_an_answer_means(
        self, answer: httpx.Response | Exception, error: type[Exception]
    ) -> None:
        def answered(_: httpx.Request) -> httpx.Response:
            if isinstance(answer, Exception):
                raise answer
            return answer

        provider = HttpProvider(
            PspSettings(url="http://psp", key="k"),  # type: ignore[arg-type]
            httpx.MockTransport(answered),
        )
        with pytest.raises(error):
            run(provider.perform(ASKED))

    def test_against_the_pretended_provider(self) -> None:
        async def talk() -> tuple[Told, Told | None, Told | None, Told]:
            simulator = Simulator(Operations(0, FLAWLESS), "k", "", SECRET)
            async with TestServer(simulator.app()) as server:
                settings = PspSettings(url=str(server.make_url("/")), key="k")  # type: ignore[arg-type]
                provider = HttpProvider(settings)
                try:
                    first = await provider.perform(ASKED)
                    looked = await provider.look(ASKED.reference)
                    nothing = await provider.look("main.p.other")
                    return first, looked, nothing, await provider.perform(ASKED)
                finally:
                    await provider.close()

        first, looked, nothing, again = run(talk())
        assert first == looked == again
        assert first.status == "succeeded"
        assert nothing is None

    def test_a_lost_request_is_no_answer(self) -> None:
        async def talk() -> None:
            simulator = Simulator(Operations(0, Behaviour(lost_after=100)), "k", "", SECRET)
            async with TestServer(simulator.app()) as server:
                settings = PspSettings(url=str(server.make_url("/")), key="k", timeout_ms=50)  # type: ignore[arg-type]
                provider = HttpProvider(settings)
                try:
                    with pytest.raises(NoAnswer):
                        await provider.perform(ASKED)
                    found = await provider.look(ASKED.reference)
                    assert found is not None
                    assert found.status == "succeeded"
                finally:
                    await provider.close()

        run(talk())
