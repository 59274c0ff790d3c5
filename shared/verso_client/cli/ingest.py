"""``verso ingest``: send files as documents, or their lines to a log collection."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

import typer

from verso_client.cli import render, sources
from verso_client.cli.line_times import FORMATS
from verso_client.cli.sources import Format, Reading, guess_format
from verso_client.cli.tailing.complete import CompleteFile
from verso_client.cli.tailing.identity import label
from verso_client.cli.tailing.joining import Joining
from verso_client.cli.terminal import (
    INGEST_PATIENCE_S,
    AsJson,
    Collection,
    Exit,
    bar,
    client,
    failures_reported,
    out,
    print_json,
)
from verso_client.client import Client
from verso_client.operations.documents import IngestReport, Progress
from verso_client.operations.lines import LinesReport
from verso_core.jobs import CollectionKind
from verso_core.jobs.logs.time_formats import NONE

_FLUSH_S = 0.5
_READ_BYTES = 1 << 20


def ingest(
    context: typer.Context,
    files: Annotated[
        list[str], typer.Argument(help="Files to ingest, or folders of them; - is standard input.")
    ],
    collection: Collection = "default",
    format: Annotated[  # noqa: A002 - the option's name
        Format, typer.Option(help="How files are read; auto goes by their names.")
    ] = Format.AUTO,
    name: Annotated[
        str | None,
        typer.Option(
            help="What ids start with, of log lines their label source; default: host, path."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="A whole file replaces what had its name.")
    ] = False,
    pages: Annotated[
        bool, typer.Option("--pages", help="Each page of a PDF, slide or sheet is a document.")
    ] = False,
    time_format: Annotated[
        str, typer.Option(help=f"Of times in lines: {', '.join(FORMATS)}, or as %H:%M:%S.")
    ] = "auto",
    no_time: Annotated[bool, typer.Option("--no-time", help="Look for no times in lines.")] = False,
    multiline: Annotated[
        str | None,
        typer.Option(help="Regular expression of the lines that begin a record; others join it."),
    ] = None,
    meta: Annotated[
        list[str] | None, typer.Option("--meta", "-m", help="key=value, added to every document.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take texts in: each is stored as a vector and a patch, and its text is dropped."""
    files = list(sources.below(files))
    if not files:
        raise typer.BadParameter("expected files, found none")
    if replace and name is not None and len(files) > 1:
        raise typer.BadParameter("expected one file with --name and --replace")
    times = None if no_time else time_format
    reading = Reading(
        how=format,
        name=name,
        metadata=sources.pairs(meta),
        times=times,
        replace=replace,
        joining=_joining(multiline, times),
        pages=pages,
    )
    started = time.monotonic()
    with client(context, patience_s=INGEST_PATIENCE_S) as platform, bar() as progress:
        task = progress.add_task("ingest", total=None)
        if takes_lines(platform, collection, files, format):
            found = _ingest_lines(
                platform,
                files,
                reading,
                collection=collection,
                labels=sources.labels(meta),
                progress=lambda done: progress.update(task, completed=done),
            )
            _show_lines(found, seconds=time.monotonic() - started, as_json=as_json)
            return

        def show(state: Progress) -> None:
            progress.update(task, completed=state.done, total=state.sent)

        documents = sources.documents(files, reading)
        report = platform.ingest(documents, collection=collection, progress=show)
    _show_documents(report, seconds=time.monotonic() - started, as_json=as_json)
    raise typer.Exit(Exit.of(len(report.failed), len(report.failed) + report.documents))


def _joining(multiline: str | None, times: str | None) -> Joining | None:
    """Return how lines are joined to records; the command fails if the expression is invalid."""
    if multiline is None:
        return None
    with failures_reported():
        return Joining(multiline, times=times)


def _ingest_lines(
    platform: Client,
    files: Sequence[str],
    reading: Reading,
    *,
    collection: str,
    labels: Mapping[str, str],
    progress: Callable[[int], None],
) -> list[LinesReport]:
    """Send the lines of files to a log collection.

    Raises:
        BadParameter: an option is of documents only.
    """
    name = reading.name
    if reading.replace:
        raise typer.BadParameter("expected no --replace for a log collection")
    return ingest_files(
        platform,
        files,
        collection=collection,
        host=name or socket.gethostname(),
        labels=labels if name is None else {"source": name, **labels},
        joining=reading.joining,
        time_format=reading.times or NONE,
        progress=progress,
    )


def _show_lines(found: list[LinesReport], *, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        render.lines_ingested(out(), found, seconds=seconds)


def _show_documents(report: IngestReport, *, seconds: float, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        render.ingested(out(), report, seconds=seconds)


def takes_lines(platform: Client, collection: str, files: Sequence[str], how: Format) -> bool:
    """Whether files are log lines for a collection of kind logs.

    Raises:
        OSError: a file cannot be read.
    """
    for file in files:
        if file != "-":
            _check_readable(Path(file))
    formats = {guess_format(file) if how is Format.AUTO else how for file in files}
    if formats & {Format.JSONL, Format.EXTRACT} or how is Format.FILES:
        return False
    kinds = {one.name: one.kind for one in platform.collections()}
    return kinds.get(collection) is CollectionKind.LOGS


def _check_readable(path: Path) -> None:
    """Check that a file can be read; a pipe is not opened, as its writer would see it closed.

    Raises:
        OSError: it cannot.
    """
    if stat.S_ISREG(path.stat().st_mode):
        path.open("rb").close()
    elif not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def ingest_files(
    platform: Client,
    files: Sequence[str],
    *,
    collection: str,
    host: str,
    labels: Mapping[str, str],
    joining: Joining | None,
    time_format: str,
    progress: Callable[[int], None],
) -> list[LinesReport]:
    """Send the lines of files, as they are or joined to records; each file has a label of its own.

    What was accepted of a file before, by its identity and by how far, is passed over.

    Raises:
        OSError: a file cannot be read.
    """
    found = []
    for file in files:
        own = {"host": socket.gethostname(), "source": _source(file), **labels}
        with _opened(file) as stream:
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) and file != "-":
                complete = CompleteFile(stream.fileno(), host=host, joining=joining)
                report = platform.ingest_source(
                    complete.read,
                    collection=collection,
                    labels=own,
                    time_format=time_format,
                    progress=progress,
                )
            else:
                parts = _arriving(stream)
                report = platform.ingest_lines(
                    filter(None, parts) if joining is None else joining.bodies(parts),
                    collection=collection,
                    labels=own,
                    records=joining is not None,
                    time_format=time_format,
                    progress=progress,
                )
            found.append(report)
    return found


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """Yield a file, or standard input."""
    if file == "-":
        yield sys.stdin.buffer
    else:
        with Path(file).open("rb") as stream:
            yield stream


def _source(file: str) -> str:
    return "-" if file == "-" else label(str(Path(file).absolute()))


def _arriving(stream: IO[bytes]) -> Iterator[bytes | None]:
    """Yield whole lines of a pipe: what has come in, when some have waited or are much.

    None stands where the pipe is silent. Ctrl-C meanwhile is its end: what was read is sent.

    Raises:
        TextTooLarge: a line is longer than one of a pipe may be.
    """
    number, rest, since = stream.fileno(), b"", time.monotonic()
    ended = False
    while not ended:
        try:
            ready, _, _ = select.select([number], [], [], _FLUSH_S)
            data = os.read(number, _READ_BYTES) if ready else b""
            ended = bool(ready) and not data
        except KeyboardInterrupt:
            ready, data, ended = [], b"", True
        rest += data
        if ended or len(rest) >= _READ_BYTES or time.monotonic() - since >= _FLUSH_S:
            end = len(rest) if ended else rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
            rest, since = rest[end:], time.monotonic()
            sources.check_line(len(rest))
        if not ready and not ended:
            yield None
