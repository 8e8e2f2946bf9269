"""The demo, step by step; each says what it does, does it, and keeps what it found out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import polars as pl
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from api.auth import READ
from api.issuer import DevIssuer
from connectors.datasets import DATASETS, Unavailable
from infra.cli import rebuild
from infra.demo import questions
from infra.demo.compare import Check, opened
from infra.demo.flow import Flow
from infra.demo.ground import Ground
from infra.demo.scenarios import SCENARIOS, Scenario, load
from infra.demo.sources import RECORD, Traffic
from infra.demo.waves import REPEAT_EVERY, old_repeats, waves
from infra.error import StackError
from infra.local.home import Home
from infra.local.parts import DEFAULT
from infra.local.stack import Stack
from sinks import digest
from streams import catalog
from streams.runtime.projection import Projection, System
from streams.runtime.rebuild import Differs
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

TOKEN_TTL_S = 3_600
ANSWER_CHARS_MAX = 300
LIVE_TIMEOUT_S = 1.0

Waves = tuple[Topic, int, Iterable[pl.DataFrame]]


@dataclass
class Demo:
    """One run over some systems. Steps are called in the order they are written in."""

    names: Sequence[str]
    scale: int
    console: Console
    home: Home = field(default_factory=Home.default)
    checks: list[Check] = field(default_factory=list)
    """Everything that was compared so far."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.names if name not in SCENARIOS]
        if unknown:
            raise StackError(
                f"no demo of {', '.join(unknown)}; there is one of {', '.join(SCENARIOS)}"
            )
        self.recounts = {name: SCENARIOS[name].recount() for name in self.names}
        self.traffic: dict[str, list[Traffic]] = {}

    @property
    def systems(self) -> list[System]:
        """What is shown; after `data`, without those that no data can be had for."""
        return [catalog.load(name) for name in self.names]

    @property
    def scenarios(self) -> list[Scenario]:
        """Their parts of the demo."""
        return [SCENARIOS[name] for name in self.names]

    @property
    def projections(self) -> list[Projection]:
        """All agents of these systems."""
        return [one for system in self.systems for one in system.projections]

    def data(self) -> None:
        """Fetch the data sets, and go on without those that cannot be had."""
        self._title("Public data")
        wanted = {name for scenario in self.scenarios for name, _ in scenario.mappings}
        frames: dict[str, pl.DataFrame] = {}
        for name in (name for name in DATASETS if name in wanted):
            about = DATASETS[name]
            named = f"{about.package}: {about.title} (licence {about.licence})"
            try:
                frames[name] = load(name, self.home.root / "datasets")
                self._say(f"[green]have[/]  {escape(named)}")
            except Unavailable as error:
                self._say(f"[yellow]without[/] {escape(named)}: {escape(str(error))}")
        for scenario in self.scenarios:
            self.traffic[scenario.system] = scenario.traffic(frames)
            for traffic in self.traffic[scenario.system]:
                copies = f", {self.scale} times" if self.scale > 1 else ""
                self._say(f"      {traffic.topic.name} ← {traffic.about}{copies}")
        self.names = [name for name in self.names if self.traffic[name]]
        if not self.names:
            raise StackError("no data set can be had, so there is nothing to show")

    def servers(self, *, keep: bool, reset: bool) -> Settings:
        """Start the servers and clear the ground; returns the addresses."""
        self._title("Servers, topics and schemas")
        stores = {one.store for one in self.projections}
        self.settings = Stack(home=self.home).up((*DEFAULT, *sorted(stores - set(DEFAULT))))
        Ground(self.settings, self.home, self.systems, self._say).prepare(keep=keep, reset=reset)
        self._say("topics and schemas applied, read models empty")
        return self.settings

    def deliver(self, url: str) -> None:
        """Send everything, 5 % of the clicks twice; return when it is folded."""
        self._title(f"Traffic: into the log and folded, one click in {REPEAT_EVERY} sent twice")
        self.flow = Flow(self.settings, self.projections, self.console)
        took_s = self.flow.deliver(
            [
                (one.topic, _rows(one, self.scale), waves(one, self.scale, repeats=True))
                for one in self._traffic()
            ],
            self._live(url),
        )
        rows = self.flow.sent.total()
        self._say(f"{rows:,} events sent and folded in {took_s:.1f} s ({rows / took_s:,.0f}/s)")

    def repeat(self) -> None:
        """Send the same 5 % once more, long after: nothing may move."""
        self._title("The same 5 % again, now that their time is over: no count may move")
        before, fates = self._digests(), self._fates()
        self.flow.deliver(
            [
                (one.topic, _rows(one, self.scale) // REPEAT_EVERY, old_repeats(one, self.scale))
                for one in self._traffic()
            ]
        )
        after = self._digests()
        for agent, was in before.items():
            moved = int(after[agent] != was)
            self.checks.append(Check(f"{agent} after repeats", "digest", 0, moved, moved))
            same = "[green]the same[/]" if after[agent] == was else "[red]DIFFERENT[/]"
            self._say(f"{agent}: digest {was} before, {after[agent]} after: {same}")
        for agent, now in self._fates().items():
            rose = ", ".join(
                f"{fate} +{now[fate] - fates[agent][fate]:,}"
                for fate in ("applied", "duplicate", "late")
            )
            self._say(f"{agent}: {rose}")

    def recount(self) -> None:
        """Count the sources once more without the product, and compare every row."""
        self._title("Recount of the source files, compared row by row")
        for scenario in self.scenarios:
            began = time.monotonic()
            counter = self.recounts[scenario.system]
            for sends in (lambda t: waves(t, self.scale, repeats=True), self._old):
                for traffic in self.traffic[scenario.system]:
                    for wave in sends(traffic):
                        counter.add(wave)
            self._say(f"{scenario.system}: recounted in {time.monotonic() - began:.1f} s")
            found = list(scenario.checks(self.settings, counter))
            self.checks += found
            self.console.print(checked(found))

    def ask(self, url: str) -> None:
        """Ask the read API, and compare what it says with the recount."""
        self._title("Questions to the read API")
        api = self.settings.api
        issuer = DevIssuer(self.home.root / "keys", api.issuer, api.audience)
        token = issuer.token("demo", [READ], TOKEN_TTL_S)
        self._say('export TOKEN="$(./dev token)"')
        for scenario in self.scenarios:
            asked = scenario.questions(self.recounts[scenario.system])
            for answer in questions.ask(asked, url, token):
                verdict = "[green]as recounted[/]" if answer.ok else "[red]DIFFERENT[/]"
                body = answer.body[:ANSWER_CHARS_MAX]
                body += "…" if len(answer.body) > ANSWER_CHARS_MAX else ""
                self._say(f"\n[bold]{escape(answer.question.about)}[/] ({verdict})")
                self._say(f"[cyan]{escape(questions.curl(answer.question, url))}[/]")
                self._say(f"{answer.status} {escape(body)}")
                self.checks.append(
                    Check(f"API {scenario.system}", answer.question.about, 1, int(answer.ok))
                )

    def rebuild(self) -> None:
        """Build every read model anew beside the live one and compare digests."""
        self._title("Rebuild from the log while the old version answers, then compare")
        for system in self.systems:
            for projection in system.projections:
                with opened(projection.name, self.settings) as (_, sink):
                    try:
                        rebuild.run(system, projection, sink, self.settings, verify=True)
                        same = 1
                    except Differs as differs:
                        self._say(f"[red]{escape(str(differs))}[/]")
                        same = 0
                self.checks.append(Check(f"rebuild {projection.name}", "same digest", 1, same))

    def _old(self, traffic: Traffic) -> Iterator[pl.DataFrame]:
        return old_repeats(traffic, self.scale)

    def _traffic(self) -> list[Traffic]:
        return [one for scenario in self.scenarios for one in self.traffic[scenario.system]]

    def _digests(self) -> Mapping[str, str]:
        """What the windows and boards hold; the history grows by design."""
        found: dict[str, str] = {}
        for projection in self.projections:
            if projection.store == "redis":
                with opened(projection.name, self.settings) as (_, sink):
                    held = digest.digest(sink, sink.live_version())
                    found[projection.name] = digest.summary(held)
        return found

    def _fates(self) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for projection in self.projections:
            with opened(projection.name, self.settings) as (_, sink):
                total: Counter[str] = Counter()
                for position in sink.positions(sink.live_version()).values():
                    total.update(position.counts)
                found[projection.name] = total
        return found

    def _live(self, url: str) -> Callable[[], RenderableType]:
        """The best airlines so far, asked of the API while the agents fold."""
        if "leaderboard" not in self.names:
            return lambda: ""
        api = self.settings.api
        token = DevIssuer(self.home.root / "keys", api.issuer, api.audience).token(
            "demo", [READ], TOKEN_TTL_S
        )
        client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=LIVE_TIMEOUT_S
        )

        def standings() -> RenderableType:
            try:
                answer = client.get("/v1/leaderboards/airlines/top", params={"k": 5})
                rows: Any = answer.json() if answer.is_success else []
            except (httpx.HTTPError, ValueError):
                rows = []
            table = Table("", "airline", "points", box=None, header_style="bold")
            for row in rows:
                table.add_row(str(row["rank"]), row["player_id"], f"{row['score']:,}")
            return table

        return standings

    def _title(self, text: str) -> None:
        self.console.rule(f"[bold]{text}[/]", align="left")

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def checked(checks: Sequence[Check]) -> Table:
    """Comparisons as a table."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("table", "what"):
        table.add_column(name)
    for name in ("recounted", "stored", "differ"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in checks:
        verdict = "[green]OK[/]" if one.ok else "[bold red]DIFFERENT[/]"
        numbers = (f"{n:,}" for n in (one.recounted, one.stored, one.different))
        table.add_row(one.where, one.what, *numbers, verdict)
    return table


def _rows(traffic: Traffic, scale: int) -> int:
    """About how many rows a traffic is, with its repeats."""
    clicks = traffic.events.filter(pl.col(RECORD) != "AdImpressed").height
    return (traffic.events.height + clicks // REPEAT_EVERY) * scale
