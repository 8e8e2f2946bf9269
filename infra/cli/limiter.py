"""`headrace limiter`: try a rule on the past, and put lost counters back."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from connectors.compacted import Feed
from connectors.limiter.rulebook import Rulebook
from infra.limiter import past
from schemas.limiter.events import RULES
from sinks.limiter.counters import Counters, counter
from streams.limiter import replay
from streams.runtime.avro import RegistrySource
from streams.runtime.settings import Settings

app = typer.Typer(add_completion=False, no_args_is_help=True)
Instant = Annotated[
    datetime | None,
    typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="UTC. Yesterday by default."),
]
TOP = 10
DAY = timedelta(days=1)
TIMEOUT_S = 5.0


@app.command("try", epilog="Example: headrace limiter try payments-per-client.json")
def try_rule(
    rule: Annotated[Path, typer.Argument(help="JSON, as PUT /v1/limiter/rules/… takes it.")],
    since: Instant = None,
    until: Instant = None,
) -> None:
    """Show what a rule would have done. Nothing is changed and nobody is told.

    The requests are those that any rule was asked about; a SHADOW rule makes a route one of them.
    """
    begin = since or datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - DAY
    end = until or begin + DAY
    wanted = past.rule_of(rule)
    rows = past.decisions(Settings.read(), _milliseconds(begin), _milliseconds(end))
    began = time.monotonic()
    found = replay.tried(wanted, rows)
    console = Console(highlight=False)
    console.print(
        f"{rows.height:,} requests from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, "
        f"{len(found.ids):,} of them are what {wanted.rule_id} is for.\n"
        f"It would have refused {found.refused:,}; {found.changed:,} would have ended otherwise "
        f"than they did ({time.monotonic() - began:.1f} s)."
    )
    if found.refused:
        table = Table("whose", "refused")
        ranked = sorted(found.refused_by_key.items(), key=lambda one: (-one[1], one[0]))
        for key, refused in ranked[:TOP]:
            table.add_row(" · ".join(key.split("\n")) or "all together", f"{refused:,}")
        console.print(table)


@app.command(epilog="Example: headrace limiter restore")
def restore() -> None:
    """Put counters back that Redis has lost, from the decisions of the longest window."""
    put, rules = asyncio.run(_restore(Settings.read()))
    Console(highlight=False).print(f"{put:,} counters of {rules} rules were put back.")


async def _restore(settings: Settings) -> tuple[int, int]:
    url = settings.limiter.url or settings.redis.url
    counters = Counters.connect(url.get_secret_value(), TIMEOUT_S, cluster=settings.limiter.cluster)
    try:
        with closing(RegistrySource(settings.registry.url)) as schemas:
            async with Feed(RULES, settings.kafka, schemas, Rulebook()) as feed:
                rules = feed.book.rules
        now_ms = await counters.now_ms()
        # A full bucket takes burst/limit windows; a slot is gone one part after its window.
        longest = max(
            (r.window_ms * (1 + r.capacity // r.limit) for r in rules.values()), default=0
        )
        rows = await asyncio.to_thread(past.decisions, settings, now_ms - longest, now_ms + 1)
        lost = {
            counter(rule, key, part): (ttl_ms, fields)
            for rule, key, state in replay.spent(rules, rows)
            for part, ttl_ms, fields in replay.stored(rule, state, now_ms)
        }
        return await counters.restore(lost), len(rules)
    finally:
        await counters.close()


def _milliseconds(moment: datetime) -> int:
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1_000
