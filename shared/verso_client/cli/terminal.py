"""What all commands share: the platform they call, their output, failures and exit statuses."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, NoReturn

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from verso_client.client import Client
from verso_client.exchange import Retries, Unreachable
from verso_client.times import unix_seconds
from verso_core.errors import RequestInvalid, VersoError

PATIENCE_S = 10.0
INGEST_PATIENCE_S = 600.0
"""How long a command that ingests tries again while the platform is busy or restarts."""


class Exit(IntEnum):
    """Exit statuses; ``docs/reference/command-line.md`` explains them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    UNREACHABLE = 3
    PARTLY = 4

    @classmethod
    def of(cls, failed: int, items: int) -> Exit:
        """Return the status of a command some of whose items failed."""
        if not failed:
            return cls.OK
        return cls.PARTLY if failed < items else cls.ERROR


def time_of(text: str) -> float:
    """Return a time of the command line, Unix seconds.

    Raises:
        typer.BadParameter: it is none.
    """
    try:
        return unix_seconds(text)
    except RequestInvalid as error:
        raise typer.BadParameter(error.detail) from None


Collection = Annotated[str, typer.Option("--collection", "-c", help="Name of the collection.")]
Since = Annotated[
    float | None,
    typer.Option(
        parser=time_of, metavar="TIME", help="From this time on: 15m, 2d, yesterday, RFC 3339."
    ),
]
Until = Annotated[
    float | None,
    typer.Option(parser=time_of, metavar="TIME", help="Before this time: the same forms."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@dataclass(frozen=True)
class Target:
    """The platform that the commands call; ``wait``: until it answers at all."""

    url: str
    api_key: str | None
    patience_s: float | None
    wait: bool = False


@contextlib.contextmanager
def client(
    context: typer.Context, *, patience_s: float = PATIENCE_S, wait: bool = False
) -> Iterator[Client]:
    """Yield a client of the platform that the command line names.

    A platform that does not answer at all is reported at once, unless the command (``wait``) or
    the command line says to wait; one that restarts later is waited for.
    """
    chosen: Target = context.obj
    retries = Retries(patience_s if chosen.patience_s is None else chosen.patience_s)
    with failures_reported(), Client(chosen.url, api_key=chosen.api_key, retries=retries) as made:
        if not (wait or chosen.wait):
            made.alive()
        yield made


@contextlib.contextmanager
def failures_reported() -> Iterator[None]:
    """Report an expected failure as one line on standard error, with its exit status."""
    try:
        yield
    except Unreachable as error:
        hint = "start one with `verso up`, or name one with --url; --wait waits for it"
        fail(error.code, f"{error.detail}; {hint}", status=Exit.UNREACHABLE)
    except VersoError as error:
        fail(error.code, error.detail)
    except ValidationError as error:  # of a request, which is built here
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = "".join(f"/{part}" for part in fault["loc"])
        fail(RequestInvalid.code, f"{where}: {fault['msg']}")
    except BrokenPipeError:  # `verso logs | head`: typer ends without a word
        raise
    except OSError as error:
        told = error.strerror or str(error)
        fail("file", told if error.filename is None else f"{told}: {error.filename}")
    except KeyboardInterrupt:
        fail("interrupted", "jobs that were accepted continue")


def fail(code: str, detail: str, *, status: Exit = Exit.ERROR) -> NoReturn:
    """Print an error and exit."""
    typer.echo(f"{code}: {detail}", err=True)
    raise typer.Exit(status)


_CONTROLS = {
    code: None
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\t\n"
}
"""Characters that move a cursor, write to a clipboard, or turn what stands beside them."""


class _Tables(Console):
    """Leaves out what controls a terminal: texts are their senders', and ``--json`` has it all."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else text.translate(_CONTROLS), style, control)


def out() -> Console:
    """Return the console for standard output."""
    return _Tables()


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
