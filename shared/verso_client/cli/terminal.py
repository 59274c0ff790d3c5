"""What all commands share: the platform they call, their output and their failures."""

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
from verso_client.exchange import Retries
from verso_core.errors import VersoError

PATIENCE_S = 10.0
Collection = Annotated[str, typer.Option("--collection", "-c", help="Name of the collection.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@dataclass(frozen=True)
class Target:
    """The platform that the commands call."""

    url: str
    api_key: str | None
    patience_s: float | None


@contextlib.contextmanager
def client(context: typer.Context, *, patience_s: float = PATIENCE_S) -> Iterator[Client]:
    """Yield a client of the platform that the command line names."""
    chosen: Target = context.obj
    retries = Retries(patience_s if chosen.patience_s is None else chosen.patience_s)
    with failures_reported(), Client(chosen.url, api_key=chosen.api_key, retries=retries) as made:
        yield made


@contextlib.contextmanager
def failures_reported() -> Iterator[None]:
    """Report an expected failure as one line on standard error, with exit status 1."""
    try:
        yield
    except VersoError as error:
        fail(error.code, error.detail)
    except OSError as error:
        fail("file", f"{error.strerror}: {error.filename}")
    except KeyboardInterrupt:
        fail("interrupted", "jobs that were accepted continue")


def fail(code: str, detail: str) -> NoReturn:
    """Print an error and exit with status 1."""
    typer.echo(f"{code}: {detail}", err=True)
    raise typer.Exit(1)


def out() -> Console:
    """Return the console for standard output."""
    return Console()


def print_json(value: BaseModel | list[Any]) -> None:
    """Print one answer or a list of answers as JSON."""
    rows = value if isinstance(value, list) else [value]
    dumped = [row.model_dump(mode="json", exclude_none=True) for row in rows]
    shown = dumped if isinstance(value, list) else dumped[0]
    typer.echo(json.dumps(shown, ensure_ascii=True, indent=2))


def bar() -> Progress:
    """Return a progress bar on standard error, shown at a terminal only."""
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
