"""The demo of short links: a web server's log, each of its pages behind a short link.

The pages that were asked for most become short links; every request of the log for one of them is
made again, with the user agent and the referrer it had. What counts, by page, referrer and method,
is compared with a recount of the log in plain Python.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import polars as pl
from rich.console import Console

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS
from infra.demo import processes
from infra.demo.compare import Check
from infra.demo.scenarios import load
from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from streams.runtime.settings import Settings

PAGES = 40
CAP = 5
AT_ONCE = 8
PATIENCE_S = 60.0
ROBOTS = (
    "bot/",
    "bot ",
    "crawl",
    "spider",
    "slurp",
    "curl/",
    "wget/",
    "python-",
    "java/",
    "preview",
)
ORIGIN = "https://logged.example"


@dataclass(frozen=True)
class Request:
    """One request of the log; empty where it said nothing."""

    page: str
    method: str
    agent: str
    referrer: str

    @property
    def counts(self) -> bool:
        """Whether a person clicked, by the recount."""
        said = self.agent.lower()
        return self.method == "GET" and bool(said) and not any(word in said for word in ROBOTS)


def requests(log: pl.DataFrame) -> list[Request]:
    """The requests for the pages that were asked for most, in the order of the log."""
    asked = log.filter(pl.col("method").is_in(["GET", "HEAD"]))
    most = Counter(asked["path"].to_list()).most_common(PAGES)
    pages = {page for page, _ in most}
    return [
        Request(row["path"], row["method"], row["agent"] or "", row["referer"] or "")
        for row in asked.iter_rows(named=True)
        if row["path"] in pages
    ]


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]URL shortener[/]", align="left")
    log = requests(load("access-log", home.root / "datasets"))
    source = DATASETS["access-log"]
    console.print(f"{len(log):,} requests for {PAGES} pages ({source.title}, {source.licence})")
    settings = Stack(home=home).up(("kafka", "registry", "redis", "clickhouse", "cassandra"))
    apply(settings)
    with (
        processes.product(home, settings, "links") as url,
        _client(home, settings, url) as client,
    ):
        codes = {page: _shorten(client, page) for page in dict.fromkeys(r.page for r in log)}
        capped = _shorten(client, "/capped", clicksMax=CAP)
        _settle(client, [*codes.values(), capped])
        page, code = next(iter(codes.items()))
        console.print(f"{ORIGIN}{page} is now {url}/{code}", highlight=False)
        answers = _follow(client, log, codes)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            person = {"User-Agent": "Mozilla/5.0 (X11) Firefox/128.0"}
            tries = list(pool.map(lambda _: client.get(f"/{capped}", headers=person), range(20)))
        return [
            *_answers(log, answers),
            Check(
                "links", "clicks of a capped link", CAP, sum(t.status_code == 302 for t in tries)
            ),
            *_counts(client, log, codes),
        ]


def _client(home: Home, settings: Settings, url: str) -> httpx.Client:
    issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("demo", [READ, WRITE], 3_600)
    headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


def _shorten(client: httpx.Client, page: str, **more: Any) -> str:
    answer = client.post("/v1/urls", json={"longUrl": ORIGIN + page, **more})
    return str(answer.raise_for_status().json()["code"])


def _settle(client: httpx.Client, codes: list[str]) -> None:
    """Wait until all links can be followed; nothing is asked of the redirects before."""
    until_s = time.monotonic() + PATIENCE_S
    for code in codes:
        while not client.get(f"/v1/urls/{code}").is_success:
            if time.monotonic() > until_s:
                raise StackError(f"the link {code} does not get into its table")
            time.sleep(0.1)


def _follow(client: httpx.Client, log: list[Request], codes: dict[str, str]) -> list[str]:
    def follow(one: Request) -> str:
        told = {"User-Agent": one.agent, "Referer": one.referrer}
        answer = client.request(one.method, f"/{codes[one.page]}", headers=told)
        return str(answer.headers.get("Location", ""))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(follow, log))


def _answers(log: list[Request], answers: list[str]) -> Iterator[Check]:
    led = [urlsplit(one).path for one in answers]
    wrong = sum(path != urlsplit(ORIGIN + r.page).path for path, r in zip(led, log, strict=True))
    yield Check("links", "requests that were led on", len(log), sum(map(bool, answers)), wrong)


def _counts(client: httpx.Client, log: list[Request], codes: dict[str, str]) -> Iterator[Check]:
    counted = [one for one in log if one.counts]
    by_page = Counter(one.page for one in counted)
    referrers = Counter((r.page, urlsplit(r.referrer).hostname or "") for r in counted)
    now_ms = time.time_ns() // 10**6
    span = {"from": now_ms - 3_600_000, "to": now_ms + 3_600_000}

    def clicks(page: str, by: str) -> dict[str, int]:
        path = f"/v1/urls/{codes[page]}/clicks"
        answer = client.get(path, params={**span, "by": by})
        return {c["value"]: c["clicks"] for c in answer.json()} if answer.is_success else {}

    until_s = time.monotonic() + PATIENCE_S
    found: Counter[str] = Counter()
    while found.total() < by_page.total() and time.monotonic() < until_s:
        found = Counter({page: sum(clicks(page, "day").values()) for page in codes})
        time.sleep(0.2)
    yield Check(
        "clicks",
        "of people",
        by_page.total(),
        found.total(),
        len((+found).items() ^ by_page.items()),
    )
    seen = Counter({(p, r): n for p in codes for r, n in clicks(p, "referrer").items()})
    different = len(seen.items() ^ referrers.items())
    yield Check("clicks", "by page and referrer", len(referrers), len(seen), different)
    ignored = sum(not one.counts for one in log)
    yield Check("clicks", "of bots and HEADs left out", ignored, len(log) - found.total())
