"""``verso logs -f``: the newest lines of a log collection, and then those that come."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import suppress

import typer

from verso_client.client import Client
from verso_core.jobs import Filter
from verso_core.jobs.logs.lines import LineOrder, LineRow, LinesRequest
from verso_core.jobs.logs.tail import TailEvent, TailRequest, TailStart


def follow(
    platform: Client,
    collection: str,
    *,
    shown: Filter | None,
    filter: Filter | None,  # noqa: A002 - the API's own word
    contains: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show lines until Ctrl-C.

    The tail is opened first, at the oldest line that no worker has stored: each line is among the
    stored ones, on the tail, or on both, and is shown once.

    Args:
        platform: the platform.
        collection: of kind ``logs``.
        shown: which lines are shown of those that are stored.
        filter: which of those that come.
        contains: only lines with this text in them.
        limit: most stored lines that are shown.
        as_json: whether they are shown as rows of JSON.
    """
    start = TailStart.UNSTORED if limit else TailStart.NOW
    given = {"collection": collection, "start": start, "filter": filter, "contains": contains}
    request = TailRequest.model_validate(
        {name: value for name, value in given.items() if value is not None}
    )
    known: set[str | None] = set()
    with suppress(KeyboardInterrupt):
        for number, event in enumerate(platform.tail(request)):
            if not number and limit:  # the tail is open
                rows = _newest(platform, collection, shown, contains, limit)
                known = {row.id for row in rows}
                for row in rows:
                    _show(row.model_dump(mode="json", exclude_defaults=True), as_json=as_json)
            _show_event(event, known, as_json=as_json)


def _newest(
    platform: Client, collection: str, shown: Filter | None, contains: str | None, limit: int
) -> list[LineRow]:
    """Return the newest stored lines, the oldest of them first.

    Raises:
        VersoError: they cannot be read.
    """
    given = {"collection": collection, "filter": shown, "contains": contains, "limit": limit}
    request = LinesRequest.model_validate(
        {name: value for name, value in given.items() if value is not None}
        | {"order": LineOrder.NEWEST}
    )
    data = b"".join(platform.lines(request))
    rows = [LineRow.model_validate_json(row) for row in data.splitlines()]
    for row in rows:
        if row.error is not None:
            raise row.error.exception()
    return [row for row in reversed(rows) if row.id is not None]


def _show_event(event: TailEvent, known: set[str | None], *, as_json: bool) -> None:
    if event.gap is not None:
        lines = "some" if event.gap.lines is None else f"{event.gap.lines:,}"
        are = "line is" if event.gap.lines == 1 else "lines are"
        typer.echo(f"{lines} {are} missing here: {event.gap.reason}", err=True)
    if event.line is None:
        return
    if event.line.id in known:
        known.discard(event.line.id)
    else:
        _show(event.line.model_dump(mode="json", exclude_defaults=True), as_json=as_json)


def _show(row: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        data = json.dumps(row, ensure_ascii=False).encode()
    elif "text_base64" in row:
        data = base64.b64decode(str(row["text_base64"]))
    else:
        data = str(row.get("text", "")).encode()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()
