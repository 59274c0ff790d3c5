"""Commands for the API keys of a platform on this machine: they edit its file of keys.

A gateway that runs reads the file again within a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from verso_client.cli.terminal import fail, failures_reported, out
from verso_client.times import unix_seconds
from verso_core import api_keys
from verso_core.api_keys import Scope
from verso_core.errors import RequestInvalid

keys_app = typer.Typer(no_args_is_help=True, help="Make, list and revoke API keys.")

Data = Annotated[Path, typer.Option(help="Data folder of `verso up`, which has the file.")]
File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        envvar="VERSO_API_KEYS_FILE",
        help="File of keys, if it is another than the data folder's.",
        show_default=False,
    ),
]
_DATA = Path("verso-data")


@keys_app.command("new")
def new_key(
    name: Annotated[str, typer.Argument(help="Name of the key, which is also its tenant.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option("--scope", help="What it may do; again for more. Default: ingest and read."),
    ] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option("--collection", help="The only collections it sees: a name, or web-*."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: in 90d or 12h, or at 2027-01-01T00:00:00Z.")
    ] = None,
    data: Data = _DATA,
    file: File = None,
) -> None:
    """Make a key and print it: it is shown this once, and the file keeps its hash."""
    with _reported():
        secret, key = api_keys.mint(
            name,
            scopes=scope or [Scope.INGEST, Scope.READ],
            collections=collection,
            expires=None if expires is None else _moment(expires),
        )
        path = _path(data, file)
        first = not path.exists()
        api_keys.add(path, key)
    typer.echo(secret)
    typer.echo(f"{path}: {key.line()}", err=True)
    if first:
        typer.echo("a platform that runs without keys asks for them after a restart", err=True)


@keys_app.command("list")
def list_keys(data: Data = _DATA, file: File = None) -> None:
    """List the keys: their ids, never the keys themselves."""
    with _reported():
        found = api_keys.read(_path(data, file))
    table = Table("name", "id", "scopes", "collections", "expires")
    for key in found:
        table.add_row(
            key.name,
            key.id,
            "all" if key.scopes is None else ", ".join(sorted(key.scopes)),
            "" if key.collections is None else ", ".join(key.collections),
            "" if key.expires is None else f"{key.expires:%Y-%m-%d %H:%M} UTC",
        )
    out().print(table)


@keys_app.command("revoke")
def revoke_key(
    which: Annotated[str, typer.Argument(help="Name of keys, or the beginning of one's id.")],
    data: Data = _DATA,
    file: File = None,
) -> None:
    """Revoke all keys of a name, or one by its id: a running gateway refuses it in a second."""
    with _reported():
        gone = api_keys.revoke(_path(data, file), which)
    for key in gone:
        typer.echo(f"revoked {key.name} {key.id}", err=True)


def _path(data: Path, file: Path | None) -> Path:
    return data / api_keys.FILE_NAME if file is None else file


def _moment(value: str) -> datetime:
    """Return when a key ends: a span counts from now on.

    Raises:
        RequestInvalid: it is no time, or a past one.
    """
    end = datetime.fromtimestamp(unix_seconds(value, ahead=True), UTC).replace(microsecond=0)
    if end <= datetime.now(UTC):
        raise RequestInvalid(f"expected a time to come, got {value!a}")
    return end


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    with failures_reported():
        try:
            yield
        except ValueError as error:
            fail("request_invalid", str(error))
