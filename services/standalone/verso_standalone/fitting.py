"""`verso train decoder` fits a codec to texts, `verso train encoder` brings an encoder."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from rich.console import Console
from rich.table import Table

from verso_client import DocumentInfo, DocumentPage, File, StoredText
from verso_client.cli.sources import Format, Reading, read
from verso_client.cli.terminal import client as connected
from verso_client.cli.terminal import failures_reported
from verso_codecs.mixture import HISTORY_BYTES
from verso_core import DISTRIBUTION, manifest
from verso_core.errors import CollectionUnknown, NotInstalled, RequestInvalid
from verso_core.jobs import CollectionKind
from verso_core.jobs.collections import CollectionInfo
from verso_core.jobs.logs.lines import LineOrder, LinesRequest
from verso_standalone import sample
from verso_standalone.stack import find_artifact, usable_cores
from verso_training.artifact import collection
from verso_training.artifact.collection import WORTH, Report
from verso_training.config import Budget

if TYPE_CHECKING:
    from verso_training.artifact.own_encoder import Made


def train_decoder(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder of the new artifact.")],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Texts, in the order they were written.")
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="Take the texts of this collection instead of files.")
    ] = None,
    artifact: Annotated[
        Path | None,
        typer.Option(help="Artifact to start from; default: the stable one below ./models."),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        Format, typer.Option(help="How files are read; auto goes by their names.")
    ] = Format.AUTO,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Also train the decoder on them for so long; needs torch."),
    ] = None,
) -> None:
    """Fit the codec to your own texts: the same vectors, far smaller patches.

    With --minutes the decoder is trained on them too. If it is stopped, the same command continues.
    """
    if bool(files) == bool(on):
        raise typer.BadParameter("expected either files or --on COLLECTION")
    console = Console()
    with failures_reported():
        base = artifact or find_artifact()
        if on is None:
            texts: Iterable[bytes] = _texts(files or [], format)
        else:
            with console.status("reading"), connected(context) as client:
                texts = texts_of(client, on, space=manifest.load(base).manifest.space.id)
        budget = None if minutes is None else Budget(minutes, threads=usable_cores(most=None))
        with console.status("fitting") if budget is None else nullcontext():
            report = collection.fit(base, texts, folder=out, name=out.name, budget=budget)
        codec = manifest.load(out).manifest.codec.id
    _show(console, report)
    console.print(f"written: {out} (codec {codec})", highlight=False)
    if on is not None:
        console.print("next:", highlight=False)
        for command in (f"models add {out}", "models promote", f"migrate {on} --to {codec}"):
            console.print(f"  verso {command}", highlight=False, soft_wrap=True)


def train_encoder(
    encoder: Annotated[
        Path, typer.Argument(help="Folder with model.safetensors or model.onnx, and a tokenizer.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the new artifact.")],
    files: Annotated[
        list[Path] | None,
        typer.Option("--texts", help="Texts to train on; default: the demo's corpus."),
    ] = None,
    artifact: Annotated[
        Path | None,
        typer.Option(help="Artifact to start from; default: the stable one below ./models."),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        Format, typer.Option(help="How files are read; auto goes by their names.")
    ] = Format.AUTO,
    minutes: Annotated[
        float, typer.Option(min=0.01, help="How long the decoder is trained; needs torch.")
    ] = 10.0,
    prompt: Annotated[
        str, typer.Option(help="Put before every text, as 'query: ' of E5's models.")
    ] = "",
) -> None:
    """Make an artifact of your own sentence encoder, with a decoder trained for minutes.

    `verso models add` lets it serve beside the stable one. If training is stopped, the same command
    continues.
    """
    console = Console()
    with failures_reported():
        texts = list(_texts(files, format)) if files else _samples()
        budget = Budget(minutes, threads=usable_cores(most=None))
        made = _made(encoder, texts, artifact or find_artifact(), out, budget, prompt)
    console.print(
        f"written: {out} ({made.dim} dimensions; {made.steps:,} steps on {made.chunks:,} chunks)",
        highlight=False,
    )
    console.print(f"next: verso models add {out}", highlight=False)


def _samples() -> list[bytes]:
    texts = (document.text for document in sample.documents())
    return [text.encode() if isinstance(text, str) else text for text in texts]


def _made(
    encoder: Path, texts: list[bytes], base: Path, out: Path, budget: Budget, prompt: str
) -> Made:
    if importlib.util.find_spec("torch") is None:
        raise NotInstalled(f"training needs torch: install {DISTRIBUTION}[training]")
    from verso_training.artifact import own_encoder  # loads torch

    return own_encoder.make(base, encoder, texts, folder=out, budget=budget, prompt=prompt)


def _show(console: Console, report: Report) -> None:
    table = Table("codec", "bytes a chunk", title=f"{report.held_out:,} chunks held out")
    table.add_row("uncoded", f"{report.raw:.1f}")
    for when, sizes in (("before", report.before), ("fitted", report.after)):
        for codec, size in sizes.items():
            table.add_row(f"{codec}, {when}", f"{size:.1f}")
    if (training := report.training) is not None:
        for what, pair in (("neural", training.neural), ("smallest", training.smallest)):
            for when, size in zip(("before", "trained"), pair, strict=True):
                table.add_row(f"{what}, {when} ({training.measured:,} chunks)", f"{size:.1f}")
    console.print(table)
    if training is not None and not training.kept:
        console.print(f"the decoder is unchanged: training it saves less than {WORTH:.0%}")


def _texts(files: list[Path], how: Format) -> Iterator[bytes]:
    for path in files:
        try:
            with path.open("rb") as stream:
                for document in read(stream, str(path), Reading(how=how, times=None)):
                    if isinstance(document, File):
                        raise RequestInvalid(f"expected texts, got {path}: --format files is one")
                    if document is not None:
                        text = document.text
                        yield text.encode() if isinstance(text, str) else text
        except OSError as exc:
            raise RequestInvalid(f"expected a file of texts at {path}, got {exc.strerror}") from exc


MOST_BYTES = 2 * HISTORY_BYTES
"""Most text that is read, bytes. The codec keeps half as much: the last texts and a sample."""

_BATCH = 64
_NUMBERS = re.compile(r"(\d+)")


class Platform(Protocol):
    """The parts of the client that read a collection."""

    def collections(self) -> list[CollectionInfo]:
        """List the collections."""

    def documents(self, collection: str, *, after: str | None = ...) -> DocumentPage:
        """List a collection's documents, a page at a time."""

    def reconstruct(self, ids: Sequence[str], *, collection: str = ...) -> list[StoredText]:
        """Return the exact texts of ids."""

    def lines(self, request: LinesRequest) -> Iterator[bytes]:
        """Yield the lines of a log collection."""


def texts_of(platform: Platform, name: str, *, space: str) -> list[bytes]:
    """Return the newest texts of a collection, the oldest of them first.

    They are ordered by their times if each has one. Otherwise they are ordered by the jobs that
    wrote them, and within a job by their ids with numbers compared as numbers, so lines of a file
    stay in order. Texts that are damaged, or deleted meanwhile, are left out.

    Args:
        platform: a client.
        name: name of the collection.
        space: id of the space that the collection must be of.

    Raises:
        CollectionUnknown: there is no such collection.
        RequestInvalid: it is of another space.
        VersoError: a text cannot be read now.
    """
    found = next((one for one in platform.collections() if one.name == name), None)
    if found is None:
        raise CollectionUnknown(f"no collection is named {name[:64]!r}")
    if found.space != space:
        raise RequestInvalid(
            f"expected an artifact of the collection's space {found.space}, got one of {space}; "
            "name another one with --artifact"
        )
    if found.kind is CollectionKind.LOGS:
        return _lines_of(platform, name)
    newest = _newest(sorted(_listed(platform, name), key=_order))
    texts: list[StoredText] = []
    for start in range(0, len(newest), _BATCH):
        ids = [row.id for row in newest[start : start + _BATCH]]
        for text in platform.reconstruct(ids, collection=name):
            if text.error is None:
                texts.append(text)
            elif text.error.retryable:
                raise text.error.exception()
    times = [text.time for text in texts if text.time is not None]
    if len(times) == len(texts):
        texts = [text for _, text in sorted(zip(times, texts, strict=True), key=lambda at: at[0])]
    return [text.data for text in texts]


def _lines_of(platform: Platform, name: str) -> list[bytes]:
    """Return the newest lines of a log collection, the oldest of them first."""
    request = LinesRequest(collection=name, order=LineOrder.NEWEST, limit=0, raw=True)
    parts: list[bytes] = []
    for data in platform.lines(request):
        parts.append(data)
        if sum(map(len, parts)) > MOST_BYTES:
            break
    *lines, cut = b"".join(parts)[:MOST_BYTES].split(b"\n")
    return (lines or [cut])[::-1]


def _listed(platform: Platform, name: str) -> Iterator[DocumentInfo]:
    cursor: str | None = None
    while True:
        page = platform.documents(name, after=cursor)
        yield from page.documents
        cursor = page.next_cursor
        if cursor is None:
            return


def _order(row: DocumentInfo) -> tuple[int, list[str | int]]:
    # The parts of an id alternate between words and numbers, so a word never meets a number.
    parts = _NUMBERS.split(row.id)
    return row.written, [int(part) if at % 2 else part for at, part in enumerate(parts)]


def _newest(rows: Sequence[DocumentInfo]) -> Sequence[DocumentInfo]:
    size = 0
    for at in reversed(range(len(rows))):
        size += rows[at].bytes
        if size > MOST_BYTES:
            return rows[at + 1 :]
    return rows
