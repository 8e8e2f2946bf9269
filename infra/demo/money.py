"""The demo of payments: books, transfers, payments through a pretended provider, reconciliation.

Everything goes through the HTTP API, as clients use it, on books with new names, so nothing that
is there is touched. Then the journal is read from the log and added up again (`journal`), and
compared with what the API says, account by account, and with what the provider has done.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from api.auth import LEDGER, PAY, READ
from api.issuer import DevIssuer
from connectors.payments.settings import settings_file
from connectors.payments.simulator.book import FIXED, SHARE_BP
from infra.demo import journal, processes
from infra.demo.compare import Check
from infra.error import StackError
from infra.local.home import CHECKOUT, Home
from infra.local.parts import DEFAULT
from infra.local.process import GRACE_S, Launch, start, stop
from infra.local.stack import Stack
from schemas.apply import apply
from schemas.payments.currencies import decimal_text
from streams.runtime.settings import Settings

TRANSFERS = 10_000
PAYMENTS = 200
ACCOUNTS = 50
AT_ONCE = 64
SETTLE_S = 240.0
"""Lost requests are asked for 15 s, 1 and 5 minutes later; their answers may be lost, too."""
PSP, PSP_PORT = "demo-psp", 18_091
KEY, SECRET = "demo", "whsec_ZGVtbyBvZiBwYXltZW50cw=="
MARK = "# Written by headrace demo payments."


def _names() -> tuple[str, str]:
    tag = uuid.uuid4().hex[:6]
    return f"demo-{tag}-a", f"demo-{tag}-b"


@dataclass
class Money:
    """One run. Steps are called in the order they are written in."""

    console: Console
    home: Home = field(default_factory=Home.default)
    transfers: int = TRANSFERS
    checks: list[Check] = field(default_factory=list)
    books: tuple[str, str] = field(default_factory=_names)
    verdicts: Counter[int] = field(default_factory=Counter)
    different: int = 0
    """Repeats that were answered otherwise."""

    def run(self) -> bool:
        """The whole demo; whether everything was equal."""
        self._title("Servers, topics and schemas")
        settings = Stack(home=self.home).up((*DEFAULT, "cassandra"))
        apply(settings)
        port = processes.free_port(self.home, settings.api.port)
        url = f"http://{settings.api.host}:{port}"
        psp_port = processes.free_port(self.home, PSP_PORT)
        psp = f"http://{settings.api.host}:{psp_port}"
        with (
            provider_settings(psp),
            pretended_provider(self.home, psp_port, f"{url}/v1/payment-webhooks"),
            processes.running(self.home, processes.WORKER, "worker", "payments"),
            processes.running(self.home, processes.API, "api", "--port", str(port)),
        ):
            processes.wait_for_api(self.home, url)
            processes.wait_for_workers(self.home, 1)
            asyncio.run(self._ask(settings, url, psp))
        return all(check.ok for check in self.checks)

    async def _ask(self, settings: Settings, url: str, psp: str) -> None:
        issuer = DevIssuer(self.home.root / "keys", settings.api.issuer, settings.api.audience)
        token = issuer.token("demo", [READ, LEDGER, PAY], 3_600)
        async with (
            httpx.AsyncClient(
                base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60
            ) as api,
            httpx.AsyncClient(
                base_url=psp, headers={"Authorization": f"Bearer {KEY}"}, timeout=60
            ) as provider,
        ):
            since_ms = time.time_ns() // 10**9 * 1_000
            await self._open(api)
            await self._transfer(api)
            payments = await self._pay(api)
            await self._settled(api, payments)
            await self._reconcile(api, provider, since_ms)
            await self._compare(settings, api, provider)

    async def _open(self, api: httpx.AsyncClient) -> None:
        self._title(f"Two books with {ACCOUNTS} wallets each")
        for book in self.books:
            world = {"account": "world", "currency": "EUR", "side": "debit", "overdraft": None}
            await self._post(api, f"/v1/books/{book}/accounts", world)
            names = ("sales", *(f"w{n}" for n in range(ACCOUNTS)))
            await self._all(
                lambda name, book=book: self._post(  # type: ignore[misc]
                    api, f"/v1/books/{book}/accounts", {"account": name, "currency": "EUR"}
                ),
                names,
            )
            dollars = {"account": "dollars", "currency": "USD"}
            await self._post(api, f"/v1/books/{book}/accounts", dollars)
            legs = [_leg("world", name, 100_000) for name in names[1:]]
            await self._post(api, f"/v1/books/{book}/transfers", {"legs": legs})

    async def _transfer(self, api: httpx.AsyncClient) -> None:
        self._title(f"{self.transfers:,} transfers, one in 20 sent twice; holds, conversions")
        chance = random.Random(1)  # noqa: S311 - traffic, no secret
        wallets = [f"w{n}" for n in range(ACCOUNTS)]

        async def one(n: int) -> None:
            book = self.books[n % 2]
            debit, credit = chance.sample(wallets, 2)
            path = f"/v1/books/{book}/transfers"
            legs = [_leg(debit, credit, chance.randint(1, 60_000))]
            body: dict[str, Any] = {"legs": legs}
            if n % 100 == 1:
                body |= {"hold": True, "timeout_ms": 5_000}
            if n % 100 == 2:
                path, body = f"/v1/books/{book}/conversions", _conversion(debit)
            if n % 100 == 3:
                path, body = f"/v1/books/{book}/remittances", _remittance(
                    debit, self.books[1 - n % 2], credit
                )  # fmt: skip
            key = f"{book} {n}"
            first = await self._post(api, path, body, key)
            self.verdicts[first.status_code] += 1
            if n % 20 == 0:
                again = await self._post(api, path, body, key)
                same = again.content == first.content or first.is_error
                self.different += again.status_code != first.status_code or not same

        began = time.monotonic()
        await self._all(one, range(self.transfers), "verdicts")
        took_s = time.monotonic() - began
        told = ", ".join(f"{count:,} × {status}" for status, count in sorted(self.verdicts.items()))
        self.checks.append(Check("transfers", "repeats answered otherwise", 0, self.different))
        self._say(f"{self.transfers / took_s:,.0f} verdicts/s over HTTP: {told}")

    async def _pay(self, api: httpx.AsyncClient) -> list[str]:
        self._title(f"{PAYMENTS} payments: declines, late and lost answers, webhooks twice")

        async def one(n: int) -> str:
            body = {
                "orderId": f"order-{n}",
                "amount": 1_000 + 7 * n,
                "currency": "EUR",
                "method": "tok_visa",
                "book": self.books[n % 2],
            }
            made = await self._post(api, "/v1/payments", body, f"pay {self.books[0]} {n}")
            return str(made.json()["payment_id"])

        return await self._all(one, range(PAYMENTS), "asked for")

    async def _settled(self, api: httpx.AsyncClient, payments: Sequence[str]) -> None:
        """Wait for every outcome, refunding a part of every third payment."""
        until_s, left = time.monotonic() + SETTLE_S, list(payments)
        states: Counter[str] = Counter()
        refundable = set(payments[::3])
        with self._bar("have an outcome", len(payments)) as advance:
            while left and time.monotonic() < until_s:
                found = await self._all(lambda name: api.get(f"/v1/payments/{name}"), left)
                waiting: list[str] = []
                for name, answer in zip(left, found, strict=True):
                    told: Any = answer.json() if answer.is_success else {"state": "pending"}
                    waits = told["state"] in ("pending", "authorized") or any(
                        one["status"] in ("requested", "unknown") for one in told["operations"]
                    )
                    if not waits and name in refundable and told["state"] == "captured":
                        refundable.remove(name)
                        await self._post(api, f"/v1/payments/{name}/refunds", {"amount": 250}, name)
                        waits = True
                    if waits:
                        waiting.append(name)
                    else:
                        states[told["state"]] += 1
                advance(len(left) - len(waiting))
                left = waiting
                await asyncio.sleep(0.5)
        summary = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        self._say(f"{summary}; {len(left)} without an outcome after {SETTLE_S:.0f} s")
        self.checks.append(Check("payments", "have an outcome", len(payments), states.total()))

    async def _reconcile(
        self, api: httpx.AsyncClient, provider: httpx.AsyncClient, since_ms: int
    ) -> None:
        self._title("The provider's settlement file, against our own operations")
        await asyncio.sleep(1)
        span = {"from": str(since_ms), "to": str(time.time_ns() // 10**9 * 1_000)}
        file = (await provider.get("/settlements/demo", params=span)).text.splitlines()
        head = file[0].split(",")
        for book in self.books:
            lines = [line for line in file if line.startswith(f"L,{book}.")]
            text = "\n".join([",".join(["H", book, *head[2:]]), *lines, f"T,{len(lines)}\n"])
            headers = {"Content-Type": "text/csv"}
            path = f"/v1/books/{book}/settlements"
            taken = await api.post(path, content=text, headers=headers)
            self.checks.append(Check("settlement", f"{book}: taken", 200, taken.status_code))
            again = (await api.post(path, content=text, headers=headers)).json()
            self.checks.append(Check("settlement", f"{book}: booked again", 0, again["new"]))
            params = {"share_bp": SHARE_BP, "fixed": FIXED}
            report = await self._eventually(api, f"{path}/{book}/report", params)
            self._say(f"{book}: {report['counts']}")
            found = sum(n for name, n in report["counts"].items() if name != "missing_there")
            self.checks.append(Check("settlement", f"{book}: lines explained", len(lines), found))

    async def _compare(
        self, settings: Settings, api: httpx.AsyncClient, provider: httpx.AsyncClient
    ) -> None:
        self._title("The journal, added up again from the log")
        await asyncio.sleep(6)  # the last holds have expired
        recount = await asyncio.to_thread(journal.read, settings, set(self.books))
        self._say(", ".join(f"{n:,} {name}" for name, n in sorted(recount.events.items())))
        for what, wrong in (
            ("events that do not balance", recount.unbalanced),
            ("balances that do not follow", recount.wrong),
            ("books with gaps in their numbers", recount.gaps()),
            ("sums that are not zero", sum(map(bool, recount.sums.values()))),
        ):
            self.checks.append(Check("journal", what, 0, wrong))
        clearing = 0
        for book in self.books:
            accounts = await self._eventually(api, f"/v1/books/{book}/accounts", {})
            stored = {one["account"]: one["balance"] for one in accounts}
            different = sum(stored[name] != recount.balances[book, name] for name in stored)
            total = sum(name == book for name, _ in recount.balances)
            touched = sum((book, name) in recount.balances for name in stored)
            self.checks.append(Check("balances", book, total, touched, different))
            overdrawn = sum(
                b < 0 for name, b in stored.items() if name[0] in "ws" and name != "world"
            )
            self.checks.append(Check("balances", f"{book}: overdrawn wallets", 0, overdrawn))
            clearing += sum(b for name, b in stored.items() if name.startswith("$clearing"))
            sums = await self._eventually(api, f"/v1/books/{book}/sums", {})
            self._show(book, sums)
        self.checks.append(Check("balances", "clearing of both books together", 0, clearing))
        for book in self.books:
            counts = (await provider.get("/counts", params={"book": book})).json()
            done = counts.get("capture EUR", 0) - counts.get("refund EUR", 0)
            sales = recount.balances[book, "sales"]
            self.checks.append(Check("provider", f"{book}: captured less refunded", done, sales))

    async def _post(
        self, api: httpx.AsyncClient, path: str, body: Any, key: str = ""
    ) -> httpx.Response:
        headers = {"Idempotency-Key": uuid.uuid5(uuid.NAMESPACE_URL, key).hex} if key else {}
        return await api.post(path, json=body, headers={**headers, "Prefer": "wait=30"})

    async def _eventually(self, api: httpx.AsyncClient, path: str, params: Any) -> Any:
        """A read, once the read model has it."""
        for _ in range(100):
            answer = await api.get(path, params=params)
            if answer.is_success:
                return answer.json()
            await asyncio.sleep(0.2)
        raise StackError(f"{path}: {answer.status_code} {answer.text}")

    async def _all(
        self, one: Callable[[Any], Awaitable[Any]], of: Sequence[Any], done: str = ""
    ) -> list[Any]:
        """Ask for all, so many at once; a bar shows how many are done."""
        free = asyncio.Semaphore(AT_ONCE)
        with self._bar(done, len(of)) as advance:

            async def bounded(what: Any) -> Any:
                async with free:
                    answer = await one(what)
                advance(1)
                return answer

            return await asyncio.gather(*map(bounded, of))

    @contextmanager
    def _bar(self, done: str, total: int) -> Iterator[Callable[[int], None]]:
        with Progress(console=self.console, transient=True, disable=not done) as bar:
            task = bar.add_task(done, total=total)
            yield lambda count: bar.advance(task, count)

    def _show(self, book: str, sums: Sequence[dict[str, Any]]) -> None:
        table = Table(title=book, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for name in ("currency", "accounts", "debits", "credits", "sum"):
            table.add_column(name, justify="left" if name == "currency" else "right")
        for one in sums:
            amounts = (
                decimal_text(one[n], one["currency"]) for n in ("debits", "credits", "balance")
            )
            table.add_row(one["currency"], str(one["accounts"]), *amounts)
        self.console.print(table)

    def _title(self, text: str) -> None:
        self.console.rule(f"[bold]{text}[/]", align="left")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)


@contextmanager
def provider_settings(url: str) -> Iterator[None]:
    """`payments.toml` names the pretended provider meanwhile; a file of somebody else is left."""
    path = settings_file()
    if path.is_file() and not path.read_text(encoding="utf-8").startswith(MARK):
        raise StackError(f"{path} names a provider of yours; the demo would use it. Move it away")
    text = f'{MARK}\n[psp]\nurl = "{url}"\nkey = "{KEY}"\nwebhook_secrets = ["{SECRET}"]\n'
    path.write_text(text + "timeout_ms = 2000\n", encoding="utf-8")
    try:
        yield
    finally:
        path.unlink()


@contextmanager
def pretended_provider(home: Home, port: int, webhook_url: str) -> Iterator[None]:
    """The provider's process while the block runs."""
    module = (sys.executable, "-m", "connectors.payments.simulator", "--port", str(port))
    given = ("--key", KEY, "--webhook-url", webhook_url, "--webhook-secret", SECRET, "--seed", "1")
    record = home.run(PSP)
    start(Launch((*module, *given), CHECKOUT, {"PYTHONPATH": str(CHECKOUT)}), record, home.log(PSP))
    try:
        yield
    finally:
        stop(record, GRACE_S)


def _leg(debit: str, credit: str, amount: int) -> dict[str, Any]:
    return {"debit_account": debit, "credit_account": credit, "currency": "EUR", "amount": amount}


def _conversion(account: str) -> dict[str, Any]:
    return {
        "from_account": account,
        "to_account": "dollars",
        "sell_currency": "EUR",
        "sell_amount": 1_000,
        "buy_currency": "USD",
        "rate": "1.0842",
    }


def _remittance(account: str, to_book: str, to_account: str) -> dict[str, Any]:
    return {
        "account": account,
        "to_book": to_book,
        "to_account": to_account,
        "currency": "EUR",
        "amount": 500,
    }
