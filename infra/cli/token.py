"""`headrace token`: a bearer token for the local API."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from api.auth import READ, SCOPES, WRITE
from api.issuer import TTL_S_MAX, DevIssuer
from streams.runtime.settings import Settings, home

app = typer.Typer(add_completion=False)

_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d{1,7})([smhd])", text)
    if match is None:
        raise typer.BadParameter("a number with s, m, h or d, for example 8h")
    seconds = int(match[1]) * _UNITS_S[match[2]]
    if not 1 <= seconds <= TTL_S_MAX:
        raise typer.BadParameter(f"from 1s to {TTL_S_MAX // 86_400}d")
    return seconds


@app.command(
    epilog='Examples: [bold]export TOKEN="$(headrace token)"[/] · '
    "headrace token --scope read --ttl 10m · "
    'curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:18080/v1/leaderboards/weekly/top'
)
def token(
    scope: Annotated[
        list[str] | None, typer.Option(help=f"Repeatable: {', '.join(SCOPES)}.")
    ] = None,
    subject: Annotated[str, typer.Option(help="Whom the token speaks for.")] = "developer",
    ttl: Annotated[str, typer.Option(help="How long it is valid: 90s, 30m, 8h, 7d.")] = "8h",
) -> None:
    """Print a token for the local API.

    The first call makes an Ed25519 key under the local folder, readable by you only.
    """
    scopes = scope or [READ, WRITE]
    unknown = [name for name in scopes if name not in SCOPES]
    if unknown:
        raise typer.BadParameter(f"no scope {unknown[0]}; there is {', '.join(SCOPES)}")
    api = Settings.read().api
    issuer = DevIssuer(home() / "keys", api.issuer, api.audience)
    typer.echo(issuer.token(subject, scopes, _seconds(ttl)))
