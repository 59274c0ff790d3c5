"""What all commands share: where they go, how they speak, how they fail."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from verso_client.client import Client
from verso_client.retries import Retries
from verso_core.errors import VersoError

PATIENCE_S = 10.0
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@dataclass(frozen=True)
class Target:
    """Which platform the commands speak to."""

    url: str
    api_key: str | None
    patience_s: float | None


@contextlib.contextmanager
def client(context: typer.Context, *, patience_s: float = PATIENCE_S) -> Iterator[Client]:
    """Yield a client of the platform that the command line names."""
    chosen: Target = context.obj
    retries = Retries(patience_s if chosen.patience_s is None else chosen.patience_s)
    with telling(), Client(chosen.url, api_key=chosen.api_key, retries=retries) as made:
        yield made


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Turn expected failures into one line on standard error and exit status 1."""
    try:
        yield
    except VersoError as error:
        fail(error.code, error.detail)
    except OSError as error:
        fail("file", f"{error.strerror}: {error.filename}")
    except KeyboardInterrupt:
        fail("interrupted", "what was accepted goes on without you")


def fail(code: str, detail: str) -> NoReturn:
    """Say what is wrong and end with status 1."""
    typer.echo(f"{code}: {detail}", err=True)
    raise typer.Exit(1)


def out() -> Console:
    """Return the terminal."""
    return Console()


def print_json(value: BaseModel | list[Any]) -> None:
    """Print an answer, or a list of them, as JSON."""
    rows = value if isinstance(value, list) else [value]
    dumped = [row.model_dump(mode="json", exclude_none=True) for row in rows]
    shown = dumped if isinstance(value, list) else dumped[0]
    typer.echo(json.dumps(shown, ensure_ascii=True, indent=2))


def bar() -> Progress:
    """Make a bar of progress on standard error, which nobody sees but at a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
