"""The command `verso train decoder`: an artifact's codec fitted to one's own texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from verso_client.cli.sources import Format, read
from verso_client.cli.terminal import client as connected
from verso_client.cli.terminal import failures_reported
from verso_core import manifest
from verso_core.errors import RequestInvalid
from verso_standalone.harvest import texts_of
from verso_standalone.stack import find_artifact
from verso_training import collection
from verso_training.collection import WORTH, Report
from verso_training.config import Budget


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

    With --minutes the decoder learns them too. Stopped, the same command goes on where it was.
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
        budget = None if minutes is None else Budget(minutes, threads=_threads())
        with console.status("fitting") if budget is None else nullcontext():
            report = collection.fit(base, texts, folder=out, name=out.name, budget=budget)
        codec = manifest.load(out).manifest.codec.id
    _tell(console, report)
    console.print(f"written: {out} (codec {codec})", highlight=False)
    if on is not None:
        console.print("next:", highlight=False)
        for command in (f"models add {out}", "models promote", f"migrate {on} --to {codec}"):
            console.print(f"  verso {command}", highlight=False, soft_wrap=True)


def _tell(console: Console, report: Report) -> None:
    table = Table("codec", "bytes a chunk", title=f"{report.held_out:,} chunks held out")
    table.add_row("as they are", f"{report.raw:.1f}")
    for when, sizes in (("before", report.before), ("fitted", report.after)):
        for codec, size in sizes.items():
            table.add_row(f"{codec}, {when}", f"{size:.1f}")
    if (training := report.training) is not None:
        for what, pair in (("neural", training.neural), ("smallest", training.smallest)):
            for when, size in zip(("before", "trained"), pair, strict=True):
                table.add_row(f"{what}, {when} ({training.measured:,} chunks)", f"{size:.1f}")
    console.print(table)
    if training is not None and not training.kept:
        console.print(f"the decoder stays as it was: trained, it saves less than {WORTH:.0%}")


def _threads() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0))


def _texts(files: list[Path], how: Format) -> Iterator[bytes]:
    for path in files:
        try:
            with path.open("rb") as stream:
                for document in read(stream, str(path), how=how, metadata={}):
                    text = document.text
                    yield text.encode() if isinstance(text, str) else text
        except OSError as exc:
            raise RequestInvalid(f"expected a file of texts at {path}, got {exc.strerror}") from exc
