"""The demo of notifications: one day of delayed flights, told to their travellers.

Every flight that left New York an hour late or more on one day becomes an SMS to the traveller of
its aircraft. One SMS provider is down, so the other has to take over; every fifth notice is sent
twice; travellers of one carrier do not want such notices. What the providers took, and what the
timelines say, is compared with a recount of the source in plain Python.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import polars as pl
from rich.console import Console

from api.auth import MODERATE, READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS
from connectors.notifications.settings import NotificationSettings
from infra.demo import processes
from infra.demo.compare import Check
from infra.demo.scenarios import load
from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from streams.runtime.settings import Settings

DAY = "2013-07-10"
LATE_MINUTES = 60
AGAIN_EVERY = 5
UNWANTED = "EV"
"""Travellers of this carrier have opted out."""
FINAL = ("sent", "suppressed", "failed")
TOKEN_TTL_S = 3_600
PATIENCE_S = 120.0
AT_ONCE = 16
MARK = "# written by headrace demo notifications\n"

TEMPLATE = {
    "priority": "transactional",
    "defaultLocale": "en",
    "contents": [
        {
            "channel": "sms",
            "locale": "en",
            "text": "{{ carrier }} {{ flight }} to {{ dest }} leaves {{ minutes }} minutes late.",
        }
    ],
}


@dataclass(frozen=True)
class Notice:
    """One delayed flight. `id` is unique in the day."""

    id: str
    user: str
    carrier: str
    params: dict[str, Any]

    @property
    def text(self) -> str:
        """What the traveller is to read."""
        told = self.params
        return (
            f"{told['carrier']} {told['flight']} to {told['dest']} leaves "
            f"{told['minutes']} minutes late."
        )


def notices(flights: pl.DataFrame) -> list[Notice]:
    """The day's notices, in the order the flights should have left."""
    found = []
    for row in flights.sort("scheduled", "carrier", "flight").iter_rows(named=True):
        late = row["dep_delay"] is not None and row["dep_delay"] >= LATE_MINUTES
        if not late or not str(row["scheduled"]).startswith(DAY):
            continue
        params = {name: row[name] for name in ("carrier", "flight", "dest")}
        params["minutes"] = row["dep_delay"]
        id_ = f"{DAY}-{row['carrier']}{row['flight']}-{row['origin']}"
        user = f"traveller-{row['carrier']}-{row['tailnum']}"
        found.append(Notice(id_, user, row["carrier"], params))
    return found


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]Notifications[/]", align="left")
    told = notices(load("flights", home.root / "datasets"))
    console.print(
        f"{len(told)} flights left at least {LATE_MINUTES} minutes late on {DAY} "
        f"({DATASETS['flights'].title}, {DATASETS['flights'].licence})"
    )
    settings = Stack(home=home).up(("kafka", "registry", "redis"))
    apply(settings)
    with ExitStack() as running:
        inbox = _providers(running, home)
        url = _product(running, home, settings)
        client = running.enter_context(_client(home, settings, url))
        run_id = f"demo{int(time.time())}"
        _join(client, told, run_id)
        console.print("recipients are known, one carrier's have opted out, provider sms-a is down")
        ids = _send(client, told, run_id)
        states = [_final(client, id_) for id_ in ids.values()]
        example = next(one for one in states if one["status"] == "sent")
        console.print("a timeline:", json.dumps(example, indent=2), highlight=False, soft_wrap=True)
        return list(_checks(told, run_id, states, inbox))


def _providers(running: ExitStack, home: Home) -> Path:
    """Two providers of SMS, the first of them down; returns the inbox of the second."""
    file, inbox = home.root / "notifications.toml", home.root / "log" / "demo-sms-b.jsonl"
    if file.exists() and not file.read_text().startswith(MARK):
        raise StackError(f"{file} names providers of yours; the demo would send to them")
    inbox.parent.mkdir(parents=True, exist_ok=True)
    inbox.unlink(missing_ok=True)
    lines = [MARK]
    for wanted, name, mode in ((18_600, "sms-a", "down"), (18_601, "sms-b", "ok")):
        port = processes.free_port(home, wanted)
        command = ("simulate", "sms", "--port", str(port), "--mode", mode, "--log", str(inbox))
        running.enter_context(processes.running(home, f"demo-{name}", *command))
        lines.append(
            f'[[provider]]\nname = "{name}"\nchannel = "sms"\nkey = "secret"\n'
            f'url = "http://127.0.0.1:{port}/messages"\nrate_per_s = 500\n'
        )
    file.write_text("\n".join(lines))
    NotificationSettings.read(file)
    running.callback(file.unlink)
    return inbox


def _product(running: ExitStack, home: Home, settings: Settings) -> str:
    """A worker and the API; returns its address."""
    port = processes.free_port(home, settings.api.port)
    url = f"http://{settings.api.host}:{port}"
    verb = ("worker", "notifications", "--processes", "1")
    running.enter_context(processes.running(home, processes.WORKER, *verb))
    running.enter_context(processes.running(home, processes.API, "api", "--port", str(port)))
    processes.wait_for_api(home, url)
    processes.wait_for_workers(home, 1)
    return url


def _client(home: Home, settings: Settings, url: str) -> httpx.Client:
    issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("demo", [READ, WRITE, MODERATE], TOKEN_TTL_S)
    headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


def _join(client: httpx.Client, told: list[Notice], run_id: str) -> None:
    """Publish the template; every traveller has a phone, some do not want notices."""
    published = client.put("/v1/notification-templates/flight_delayed", json=TEMPLATE)
    published.raise_for_status()
    after = {"Headrace-After": published.headers["Headrace-Position"], "Prefer": "wait=10"}
    client.get("/v1/notification-templates/flight_delayed", headers=after).raise_for_status()
    opted = {"optOuts": [{"channel": "*", "category": "flight_delayed"}]}

    def join(user: str, carrier: str) -> None:
        base = f"/v1/users/{run_id}-{user}"
        contact = {"phone": "+12025550123"}
        client.put(f"{base}/notification-contact", json=contact).raise_for_status()
        if carrier == UNWANTED:
            client.put(f"{base}/notification-preferences", json=opted).raise_for_status()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda one: join(*one), {(n.user, n.carrier) for n in told}))


def _send(client: httpx.Client, told: list[Notice], run_id: str) -> dict[str, str]:
    """Send every notice, each fifth twice; returns the notification of each."""

    def send(notice: Notice) -> str:
        body = {
            "userId": f"{run_id}-{notice.user}",
            "type": "flight_delayed",
            "params": notice.params,
            "idempotencyKey": notice.id,
        }
        answer = client.post("/v1/notifications", json=body)
        answer.raise_for_status()
        return str(answer.json()["id"])

    twice = told + told[::AGAIN_EVERY]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ids = list(pool.map(send, twice))
    return dict(zip([notice.id for notice in told], ids, strict=False))


def _final(client: httpx.Client, id_: str) -> dict[str, Any]:
    """The timeline of a notification once it is over."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        answer = client.get(f"/v1/notifications/{id_}")
        if answer.is_success and answer.json()["status"] in FINAL:
            found: dict[str, Any] = answer.json()
            return found
        if time.monotonic() > until_s:
            raise StackError(f"notification {id_} does not come to an end: {answer.text}")
        time.sleep(0.1)


def _checks(
    told: list[Notice], run_id: str, states: list[dict[str, Any]], inbox: Path
) -> Iterator[Check]:
    """Providers and timelines against the source."""
    wanted = [notice for notice in told if notice.carrier != UNWANTED]
    own = {state["id"] for state in states}  # an earlier demo's messages may come now, too
    lines = map(json.loads, inbox.read_text().splitlines())
    taken = [one for one in lines if one["id"].partition("/")[0] in own]
    statuses = Counter(state["status"] for state in states)
    where = "notifications"
    yield Check(where, "notices sent", len(wanted), statuses["sent"])
    yield Check(where, "notices not wanted", len(told) - len(wanted), statuses["suppressed"])
    yield Check(where, "notifications", len(told), len(own))
    yield Check(where, "messages at the provider", len(wanted), len({one["id"] for one in taken}))
    texts = Counter(one["text"] for one in {one["id"]: one for one in taken}.values())
    expected = Counter(notice.text for notice in wanted)
    yield Check(where, "texts", expected.total(), texts.total(), (texts - expected).total())
    failed_over = sum(
        delivery["provider"] == "sms-b" for state in states for delivery in state["deliveries"]
    )
    yield Check(where, "taken over by sms-b", len(wanted), failed_over)
    shown = sum(state["user_id"].startswith(f"{run_id}-") for state in states)
    yield Check(where, "timelines of their recipients", len(told), shown)
