"""``verso open``: the console in a browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from verso_client.cli.terminal import Target, client

CONSOLE = "/console"


def open_console(
    context: typer.Context,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the address and open nothing.")
    ] = False,
) -> None:
    """Open the console of the platform in a browser; its address is printed."""
    chosen: Target = context.obj
    with client(context):  # says what to do where nothing answers
        address = chosen.url.rstrip("/") + CONSOLE
    typer.echo(address)
    if not only_print:
        webbrowser.open(address)
