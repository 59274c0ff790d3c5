"""What stands on a command line or in a file, read into what the client takes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import typer

from verso_client import sources
from verso_client.documents import Document
from verso_client.sources import Format
from verso_core.errors import RequestInvalid
from verso_core.jobs import Filter
from verso_core.texts import Scalar


def documents(
    files: Iterable[str],
    format: Format,  # noqa: A002
    *,
    name: str | None,
    metadata: dict[str, Scalar],
) -> Iterator[Document]:
    """Read documents from files, or from standard input where a file is called ``-``."""
    for file in files:
        if file == "-":
            # Lines without an id of their own would otherwise overwrite those of the last run.
            prefix = name or f"stdin-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            chosen = Format.LINES if format is Format.AUTO else format
            yield from sources.read(sys.stdin.buffer, prefix, how=chosen, metadata=metadata)
        else:
            with Path(file).open("rb") as stream:
                yield from sources.read(stream, file, how=format, metadata=metadata)


def pairs(given: list[str] | None) -> dict[str, Scalar]:
    """Read ``key=value`` arguments.

    Raises:
        typer.BadParameter: one is no such pair.
    """
    found: dict[str, Scalar] = {}
    for pair in given or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected key=value, got {pair!r}")
        found[key] = _scalar(value)
    return found


def _scalar(value: str) -> Scalar:
    """Read a value the way JSON would, where it is a JSON scalar, else as the string it is."""
    try:
        parsed = json.loads(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, str | int | float | bool) else value


def condition(
    where: list[str] | None, since: datetime | None, until: datetime | None
) -> Filter | None:
    """Make the filter of a search: any of several values of one key, and a time; None for all."""
    wanted: dict[str, Scalar | list[Scalar]] = {}
    for pair in where or []:
        for key, value in pairs([pair]).items():
            before = wanted.get(key)
            if before is None:
                wanted[key] = value
            else:
                wanted[key] = [*(before if isinstance(before, list) else [before]), value]
    if not wanted and since is None and until is None:
        return None
    return Filter(metadata=wanted, time_gte=unix(since), time_lt=unix(until))


def unix(time: datetime | None) -> float | None:
    """Return Unix seconds; a time without a zone is UTC."""
    if time is None:
        return None
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()


def vectors(path: Path) -> list[list[float]]:
    """Read one vector or several from a JSON file, or from standard input for ``-``.

    Raises:
        RequestInvalid: the file holds something else.
    """
    try:
        parsed = json.loads(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())
    except ValueError as exc:
        raise RequestInvalid(f"expected JSON in {path}") from exc
    if isinstance(parsed, list) and parsed and isinstance(parsed[0], int | float):
        parsed = [parsed]
    if not isinstance(parsed, list) or not all(isinstance(row, list) for row in parsed):
        raise RequestInvalid(f"expected a vector or a list of vectors in {path}")
    return parsed
