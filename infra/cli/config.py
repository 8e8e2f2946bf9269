"""`headrace config`: the settings in effect, as the variables that would set them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import orjson
import typer
from pydantic import BaseModel, SecretStr

from streams.runtime.settings import Settings

app = typer.Typer(no_args_is_help=True)
PASSWORD = re.compile(r"(?<=:)[^:/@]+(?=@)")


@app.callback()
def config() -> None:
    """The settings in effect: environment first, then what `headrace up` started."""


@app.command()
def show(
    redact: Annotated[bool, typer.Option(help="Hide passwords and keys.")] = True,
) -> None:
    """Print every setting as NAME=value, ready for a shell.

    Examples:
      headrace config show --redact

      eval "$(headrace config show --no-redact | sed 's/^/export /')"

    """
    for name, value in variables(Settings.read(), redact):
        typer.echo(f"{name}={shlex.quote(value)}")


def variables(
    settings: BaseModel, redact: bool, prefix: str = "HEADRACE_"
) -> Iterator[tuple[str, str]]:
    """The environment variables that would give these settings."""
    for field in type(settings).model_fields:
        value = getattr(settings, field)
        name = prefix + field.upper()
        if isinstance(value, BaseModel):
            yield from variables(value, redact, f"{name}__")
        elif value is not None:
            yield name, _text(value, redact)


def _text(value: Any, redact: bool) -> str:
    if isinstance(value, SecretStr):
        plain = value.get_secret_value()
        if not redact or not plain:
            return plain
        return PASSWORD.sub("***", plain) if "://" in plain else "***"
    if isinstance(value, (dict, list, tuple)):
        return orjson.dumps(value).decode()
    return str(value)
