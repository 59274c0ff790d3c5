"""Commands on collections: ``verso collections …``."""

from __future__ import annotations

from typing import Annotated

import typer

from verso_client.cli import render
from verso_client.cli.terminal import AsJson, client, out, print_json
from verso_core.jobs import Precision, SearchMode, TextPolicy

collections_app = typer.Typer(no_args_is_help=True, help="Make, list and delete collections.")


@collections_app.command("list")
def list_collections(context: typer.Context, as_json: AsJson = False) -> None:
    """List all collections."""
    with client(context) as platform:
        found = platform.collections()
    print_json(found) if as_json else render.collections(out(), found)


@collections_app.command("create")
def create_collection(
    context: typer.Context,
    name: str,
    precision: Annotated[
        Precision, typer.Option(help="How its vectors are stored.")
    ] = Precision.FLOAT16,
    text_policy: Annotated[
        TextPolicy, typer.Option(help="patch drops the texts, both keeps them too.")
    ] = TextPolicy.PATCH,
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="Keep words too, and search by both.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a collection."""
    with client(context) as platform:
        made = platform.create_collection(
            name,
            precision=precision,
            text_policy=text_policy,
            search=SearchMode.HYBRID if hybrid else SearchMode.DENSE,
        )
    print_json(made) if as_json else render.collections(out(), [made])


@collections_app.command("delete")
def delete_collection(
    context: typer.Context,
    name: str,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a collection and all its documents."""
    if not yes:
        typer.confirm(f"Delete the collection {name} and every document in it?", abort=True)
    with client(context) as platform:
        platform.delete_collection(name)
