"""``verso logs``: read the lines of a log collection in order, or by what they say."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import typer

from verso_client.cli import following, render
from verso_client.cli.filters import FilterJson, Where, filter_of
from verso_client.cli.terminal import AsJson, Collection, Since, Until, client, out, print_json
from verso_core.jobs import Filter
from verso_core.jobs.logs.lines import MAX_AROUND, LineOrder, LineRow, LinesRequest
from verso_core.jobs.search import MAX_HITS

_SHOWN = 100
_FOUND = 10
_FOLLOWED = 10


def logs(
    context: typer.Context,
    question: Annotated[
        str | None, typer.Argument(help="What to look for; without it lines are listed.")
    ] = None,
    collection: Collection = "default",
    where: Where = None,
    filter: FilterJson = None,  # noqa: A002 - the option's name
    since: Since = None,
    until: Until = None,
    contains: Annotated[
        str | None, typer.Option("--contains", help="Only lines with this text in them.")
    ] = None,
    order: Annotated[
        LineOrder | None, typer.Option(help="Default: the newest, of all lines the oldest.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=0,
            help="Lines or statements shown; 0: all lines, 1,000 statements.",
        ),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="With a question: show lines, not statements.")
    ] = False,
    around: Annotated[
        int,
        typer.Option(
            "--context", "-C", min=0, max=MAX_AROUND, help="Lines of its source around each line."
        ),
    ] = 0,
    statement: Annotated[
        str | None, typer.Option("--statement", help="Only lines of the statement with this id.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the lines' bytes, without a question all.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out lines that cannot be read.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show the newest lines, and then what comes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read log lines in order, or find the statements or lines that a question is about."""
    if follow:
        if question is not None or until is not None or order is not None or around or statement:
            raise typer.BadParameter(
                "expected --follow with --where, --since, --contains and --json"
            )
        _follow(
            context,
            collection,
            shown=filter_of(where, filter, since=since),
            filter=filter_of(where, filter),
            contains=contains,
            limit=limit,
            as_json=as_json,
        )
        return
    if question is not None and (order is not None or statement is not None):
        raise typer.BadParameter(
            "expected --order and --statement without a question: the nearest lines come first"
        )
    if raw and around:
        raise typer.BadParameter("expected --raw without --context")
    if question is not None and not (lines or raw or around or contains is not None):
        chosen = filter_of(where, filter, since=since, until=until)
        _find(context, question, collection, filter=chosen, limit=limit, as_json=as_json)
        return
    shown = _FOUND if question is not None else 0 if raw else _SHOWN
    count = shown if limit is None else limit
    newest = LineOrder.NEWEST if count else LineOrder.OLDEST
    fields = {
        "collection": collection,
        "from": since,
        "to": until,
        "filter": filter_of(where, filter),
        "contains": contains,
        "question": question,
        "statement": statement,
        "order": order or newest,
        "before": around or None,
        "after": around or None,
        "limit": count,
        "raw": not as_json and not around,
        "skip_damaged": skip_damaged or None,
    }
    _list(context, fields, as_json=as_json)


def _list(context: typer.Context, fields: Mapping[str, object], *, as_json: bool) -> None:
    """Write the lines that a request of these fields returns; those that are None are left out."""
    with client(context) as platform:
        request = LinesRequest.model_validate(
            {name: value for name, value in fields.items() if value is not None}
        )
        parts = platform.lines(request)
        for data in parts if request.raw or as_json else grouped(parts):
            sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _follow(
    context: typer.Context,
    collection: str,
    *,
    shown: Filter | None,
    filter: Filter | None,  # noqa: A002 - the option's name
    contains: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the newest lines, and then each as it is accepted."""
    with client(context) as platform:
        following.follow(
            platform,
            collection,
            shown=shown,
            filter=filter,
            contains=contains,
            limit=_FOLLOWED if limit is None else limit,
            as_json=as_json,
        )


def _find(
    context: typer.Context,
    question: str,
    collection: str,
    *,
    filter: Filter | None,  # noqa: A002 - the option's name
    limit: int | None,
    as_json: bool,
) -> None:
    """Show the statements that a question is about."""
    with client(context) as platform:
        started = time.monotonic()
        count = _FOUND if limit is None else limit or MAX_HITS
        found = platform.search(question, collection=collection, limit=count, filter=filter)
    if as_json:
        print_json(found)
    else:
        render.statements(out(), found, took_ms=(time.monotonic() - started) * 1000)


def grouped(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with those around them, as bytes, with ``--`` between groups; each line once.

    Raises:
        VersoError: the platform could not read them all.
    """
    shown: set[str] = set()
    for number, answer in enumerate(_rows(parts)):
        if answer.error is not None:
            raise answer.error.exception()
        group = [*answer.before, answer, *answer.after]
        new = [one for one in group if one.id is not None and one.id not in shown]
        shown.update(one.id for one in new if one.id is not None)
        if new:
            yield b"--\n" if number else b""
        yield from (one.data + b"\n" for one in new)


def _rows(parts: Iterable[bytes]) -> Iterator[LineRow]:
    """Yield the rows of an answer."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for row in whole:
            yield LineRow.model_validate_json(row)
