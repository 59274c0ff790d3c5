"""``verso tail``: follow files and send their lines to a log collection."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from verso_client.cli import sources
from verso_client.cli.line_times import FORMATS
from verso_client.cli.tailing.joining import Joining
from verso_client.cli.tailing.notes import Notes, default_path
from verso_client.cli.tailing.tailer import Tailer
from verso_client.cli.terminal import Collection, Target, client
from verso_client.operations.lines import SourceLines

_PATIENCE_S = 5.0


def tail(
    context: typer.Context,
    files: Annotated[
        list[str], typer.Argument(help="Files to follow; patterns in quotes: 'logs/*.log'.")
    ],
    collection: Collection = "default",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="key=value, of every line besides host and source."),
    ] = None,
    multiline: Annotated[
        str | None,
        typer.Option(help="Regular expression of the lines that begin a record; others join it."),
    ] = None,
    time_format: Annotated[
        str,
        typer.Option(help=f"Of times in lines: {', '.join(FORMATS)}, or as %H:%M:%S."),
    ] = "auto",
    name: Annotated[
        str | None, typer.Option(help="What stands for this host; default: its name.")
    ] = None,
    notes: Annotated[
        Path | None,
        typer.Option(
            help="File of notes; default: one for the platform and collection, in "
            "$XDG_STATE_HOME/verso.",
            show_default=False,
        ),
    ] = None,
    from_end: Annotated[
        bool,
        typer.Option("--from-end", help="At the first start, leave out what files hold already."),
    ] = False,
) -> None:
    """Follow files through rotation, truncation and restarts: each line is accepted once.

    An agent may start before its platform: the command waits for it.
    """
    target: Target = context.obj
    with client(context, patience_s=_PATIENCE_S, wait=True) as platform:
        joining = None if multiline is None else Joining(multiline, times=time_format)

        def send(lines: SourceLines, labels: Mapping[str, str]) -> int:
            return platform.append_lines(
                lines, collection=collection, labels=labels, time_format=time_format
            )

        held = Notes(notes or default_path(target.url, collection))
        try:
            tailer = Tailer(
                files,
                send,
                held,
                host=name or socket.gethostname(),
                labels=sources.labels(label),
                joining=joining,
                from_end=from_end,
                say=lambda text: typer.echo(text, err=True),
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: tailer.stopped.set())
            tailer.run()
        finally:
            held.close()
