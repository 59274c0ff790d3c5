"""Commands about documents by their metadata: list, count, change and delete them, and facets."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from verso_client.cli import render
from verso_client.cli.filters import FilterJson, Where, filter_of
from verso_client.cli.sources import pairs
from verso_client.cli.terminal import AsJson, Collection, Since, Until, client, out, print_json
from verso_core.jobs.documents import Order

documents_app = typer.Typer(
    no_args_is_help=True, help="List, count, change and delete documents by their metadata."
)


@documents_app.command("list")
def list_documents(
    context: typer.Context,
    collection: Collection = "default",
    where: Where = None,
    filter: FilterJson = None,  # noqa: A002 - the option's name
    since: Since = None,
    until: Until = None,
    order: Annotated[Order, typer.Option(help="By time those without one come last.")] = Order.ID,
    newest: Annotated[bool, typer.Option("--descending", "-r", help="The largest first.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Documents shown.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List documents with their metadata and time."""
    chosen = filter_of(where, filter, since=since, until=until)
    rows: list[Any] = []
    cursor: str | None = None
    with client(context) as platform:
        while len(rows) < limit:
            page = platform.query(
                collection,
                filter=chosen,
                order=order,
                descending=newest,
                limit=min(1000, limit - len(rows)),
                after=cursor,
            )
            rows += page.documents
            cursor = page.next_cursor
            if cursor is None:
                break
    print_json(rows) if as_json else render.documents(out(), rows, more=cursor is not None)


@documents_app.command("count")
def count_documents(
    context: typer.Context,
    collection: Collection = "default",
    where: Where = None,
    filter: FilterJson = None,  # noqa: A002 - the option's name
    since: Since = None,
    until: Until = None,
    as_json: AsJson = False,
) -> None:
    """Count documents."""
    chosen = filter_of(where, filter, since=since, until=until)
    with client(context) as platform:
        found = platform.count(collection, filter=chosen)
    if as_json:
        print_json(found)
    else:
        out().print(f"{'' if found.exact else 'about '}{found.documents:,}", highlight=False)


@documents_app.command("delete")
def delete_documents(
    context: typer.Context,
    collection: Collection = "default",
    where: Where = None,
    filter: FilterJson = None,  # noqa: A002 - the option's name
    since: Since = None,
    until: Until = None,
) -> None:
    """Delete the documents that all conditions hold for; at least one is needed."""
    chosen = filter_of(where, filter, since=since, until=until)
    if chosen is None:
        raise typer.BadParameter("expected --where, --filter, --since or --until")
    with client(context) as platform:
        deleted = platform.delete_matching(chosen, collection=collection)
    render.deleted(out(), deleted)


@documents_app.command("update")
def update_document(
    context: typer.Context,
    document: Annotated[str, typer.Argument(help="Id of the document.")],
    collection: Collection = "default",
    meta: Annotated[
        list[str] | None, typer.Option("--meta", "-m", help="key=value to set.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="Key that goes.")] = None,
    metadata: Annotated[
        str | None, typer.Option("--metadata", help="JSON object to set, nested as wanted.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="What is set is all metadata then.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change a document's metadata; its text stays as it is."""
    change: dict[str, Any] = {"replace": replace, "remove": remove or []}
    given = {**_object(metadata), **pairs(meta)}
    if given or replace:
        change["metadata"] = given
    with client(context) as platform:
        updated = platform.update(document, collection=collection, **change)
    if as_json:
        print_json(updated)


def facets(
    context: typer.Context,
    fields: Annotated[list[str], typer.Argument(help="Metadata keys, nested ones with dots.")],
    collection: Collection = "default",
    where: Where = None,
    filter: FilterJson = None,  # noqa: A002 - the option's name
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000)] = 10,
    as_json: AsJson = False,
) -> None:
    """Count the most frequent values of metadata fields."""
    chosen = filter_of(where, filter, since=since, until=until)
    with client(context) as platform:
        found = platform.facets(fields, collection=collection, filter=chosen, limit=limit)
    print_json(found) if as_json else render.facets(out(), found)


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError) as exc:
        raise typer.BadParameter(f"expected a JSON object: {exc}") from exc
    if not isinstance(value, dict):
        raise typer.BadParameter("expected a JSON object")
    return value
