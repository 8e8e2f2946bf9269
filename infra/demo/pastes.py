"""The demo of the pastebin: real source files, pasted, shared, burned, and left to expire.

Every file becomes a paste of two people and is read back byte by byte. One of them deletes all of
theirs, and nothing is missing for the other. Then brief pastes of the same files expire while no
worker runs; when one comes back, their contents leave the object store, one tombstone each. What
is compared is what the store and the API have, against the files themselves.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
from rich.console import Console

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS, Unavailable, fetch, source_files
from infra.cli import rebuild
from infra.demo import processes
from infra.demo.compare import Check, opened
from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from sinks.pastes.objects import S3Objects
from streams.pastes import SYSTEM
from streams.runtime.settings import Settings

AT_ONCE, CROWD = 8, 50
TTL_S = 15
PATIENCE_S = 60.0
DATASET = "source-files"
WORKER = ("worker", SYSTEM.name, "--processes", "1")


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]Pastebin[/]", align="left")
    source = DATASETS[DATASET]
    try:
        texts = source_files.texts(fetch(source, home.root / "datasets"))
    except Unavailable as error:
        raise StackError(str(error)) from error
    console.print(f"{len(texts)} files ({source.title}, {source.licence})", highlight=False)
    parts = ("kafka", "registry", "redis", "cassandra", "s3")
    settings = Stack(home=home).up(parts)
    apply(settings)
    with ExitStack() as running:
        port = processes.free_port(home, settings.api.port)
        running.enter_context(processes.running(home, processes.API, "api", "--port", str(port)))
        url = f"http://{settings.api.host}:{port}"
        people = [
            running.enter_context(_client(home, settings, url, name)) for name in ("ann", "bob")
        ]
        scene = Scene(console, texts, settings, *people)
        with processes.running(home, processes.WORKER, *WORKER):
            processes.wait_for_api(home, url)
            processes.wait_for_workers(home, 1)
            checks = [*scene.shared(), *scene.burned()]
            brief = scene.brief()
        checks += scene.unswept(brief)
        with processes.running(home, processes.WORKER, *WORKER):
            processes.wait_for_workers(home, 1)
            checks += scene.swept(brief)
    return [*checks, *_rebuilt(settings)]


class Scene:
    """Two people and the files they paste."""

    def __init__(
        self,
        console: Console,
        texts: Mapping[str, str],
        settings: Settings,
        ann: httpx.Client,
        bob: httpx.Client,
    ) -> None:
        self._console = console
        self._texts = texts
        self._settings = settings
        self._ann, self._bob = ann, bob

    def shared(self) -> Iterator[Check]:
        """One content, two pastes: it is stored once, and stays until both are gone."""
        for person in (self._ann, self._bob):
            self._forget(person)
        anns, bobs = (self._paste(person, self._texts) for person in (self._ann, self._bob))
        yield self._same("pastes of both", self._bob, {**bobs})
        yield self._same("read by others", self._ann, bobs)
        large = [text for text in self._texts.values() if self._is_large(text)]
        stored = self._until(lambda: self._stored(large), len(set(large)))
        yield Check("object store", "objects of files pasted twice", len(set(large)), stored)
        pages = [self._bob.get(f"/v1/pastes/{paste}/html").text for paste in bobs.values()]
        marked = sum('<span class="' in page for page in pages)
        small = sum(len(text.encode()) <= 262_144 for text in self._texts.values())
        yield Check("pages", "highlighted, of files short enough", small, marked)
        page = self._bob.base_url.join(f"/v1/pastes/{bobs['python']}/html")
        self._console.print(f"{page}", highlight=False)
        self._forget(self._ann)
        gone = sum(self._ann.get(f"/v1/pastes/{one}").status_code == 410 for one in anns.values())
        yield Check("pastes", "gone for everybody, by their owner", len(anns), gone)
        yield self._same("of the other owner, still there", self._ann, bobs)
        self._forget(self._bob)
        left = self._until(lambda: self._stored(large), 0)
        yield Check("object store", "objects left when both are gone", 0, left)

    def _told(self, paste: str, headers: dict[str, str]) -> int:
        """The status of a read, asked for again while the answer is to ask later."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = self._bob.get(f"/v1/pastes/{paste}", headers=headers)
            if answer.status_code != 503 or time.monotonic() > until_s:
                return answer.status_code
            time.sleep(0.1)

    def burned(self) -> Iterator[Check]:
        """Fifty ask at once for what can be read once."""
        text, secret = {"python": self._texts["python"]}, {"password": "swordfish"}
        (paste,) = self._paste(self._ann, text, burnAfterRead=True, **secret).values()
        wrong = self._bob.get(f"/v1/pastes/{paste}", headers={"Paste-Password": "mackerel"})
        yield Check("burning", "status for a wrong password", 403, wrong.status_code)
        right = {"Paste-Password": secret["password"]}
        with ThreadPoolExecutor(CROWD) as crowd:
            answers = list(crowd.map(lambda _: self._told(paste, right), range(CROWD)))
        yield Check("burning", "of fifty at once, who read it", 1, answers.count(200))
        yield Check("burning", "who were told that it is gone", CROWD - 1, answers.count(410))

    def brief(self) -> dict[str, str]:
        """Pastes that expire soon; each content is its own, so each is an object."""
        return self._paste(self._ann, self._once(), expiresIn=TTL_S)

    def unswept(self, brief: Mapping[str, str]) -> Iterator[Check]:
        """No worker runs: nobody decides that they have expired, and they have."""
        self._console.print(f"no worker runs while {len(brief)} pastes expire ({TTL_S} s)")
        time.sleep(TTL_S)
        answers = [self._bob.get(f"/v1/pastes/{one}").status_code for one in brief.values()]
        yield Check("expiry", "refused though nobody swept", len(brief), answers.count(410))
        stored = self._stored(list(self._once().values()))
        yield Check("object store", "their objects, still there", len(brief), stored)

    def swept(self, brief: Mapping[str, str]) -> Iterator[Check]:
        """The worker is back: their contents go, and that they are gone is on the log."""

        def purged() -> int:
            told = [self._bob.get(f"/v1/pastes/{one}/tombstone") for one in brief.values()]
            return sum(one.is_success and one.json()["content"] == "purged" for one in told)

        tombstones = self._until(purged, len(brief))
        yield Check("expiry", "tombstones", len(brief), tombstones)
        left = self._stored(list(self._once().values()))
        yield Check("object store", "their objects, left", 0, left)

    def _once(self) -> dict[str, str]:
        return {language: f"{text}\nbrief" for language, text in self._texts.items()}

    def _is_large(self, text: str) -> bool:
        return len(text.encode()) > self._settings.pastes.inline_bytes_max

    def _paste(self, person: httpx.Client, texts: Mapping[str, str], **more: Any) -> dict[str, str]:
        """Language → the paste, each in the table before this returns."""

        def paste(one: tuple[str, str]) -> str:
            body = {"content": one[1], "language": one[0], **more}
            made = person.post("/v1/pastes", json=body).raise_for_status()
            after = {"Headrace-After": made.headers["Headrace-Position"], "Prefer": "wait=10"}
            person.get("/v1/pastes/mine", headers=after).raise_for_status()
            return str(made.json()["id"])

        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(texts, pool.map(paste, texts.items()), strict=True))

    def _same(self, what: str, person: httpx.Client, pastes: Mapping[str, str]) -> Check:
        answers = {one: person.get(f"/v1/pastes/{paste}/raw") for one, paste in pastes.items()}
        read = sum(answer.is_success for answer in answers.values())
        other = sum(self._texts[one] != answer.text for one, answer in answers.items())
        return Check("pastes", what, len(self._texts), read, other)

    def _forget(self, person: httpx.Client) -> None:
        """Delete all pastes of somebody, an earlier demo's too."""
        while pastes := person.get("/v1/pastes/mine", params={"limit": 200}).json()["pastes"]:
            for one in pastes:
                answer = person.delete(f"/v1/pastes/{one['id']}")
                if answer.is_success:
                    position = answer.headers["Headrace-Position"]
            person.get("/v1/pastes/mine", headers={"Headrace-After": position})

    def _stored(self, texts: list[str]) -> int:
        """How many objects have one of these contents."""
        wanted = {hashlib.sha256(text.encode()).hexdigest() for text in texts}

        async def names() -> list[str]:
            async with S3Objects.open(self._settings) as objects:
                return await objects.names()

        return sum(name.partition("/")[0] in wanted for name in asyncio.run(names()))

    @staticmethod
    def _until(count: Callable[[], int], wanted: int) -> int:
        until_s = time.monotonic() + PATIENCE_S
        while (found := count()) != wanted and time.monotonic() < until_s:
            time.sleep(0.2)
        return found


def _client(home: Home, settings: Settings, url: str, name: str) -> httpx.Client:
    issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token(f"demo-{name}", [READ, WRITE], 3_600)
    headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


def _rebuilt(settings: Settings) -> Iterator[Check]:
    """The table, built from the log anew and compared with the one that answers."""
    (table,) = SYSTEM.projections
    with opened(table.name, settings) as (projection, sink):
        version = sink.live_version()
        rebuild.run(SYSTEM, projection, sink, settings, verify=True)
        yield Check("pastes-table", "version after a rebuild", version + 1, sink.live_version())
