"""The command `verso train decoder`: an artifact's codec fitted to one's own texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from verso_client.sources import Format, read
from verso_core.errors import RequestInvalid, VersoError
from verso_standalone.stack import find_artifact
from verso_training import collection


def train_decoder(
    files: Annotated[list[Path], typer.Argument(help="Texts, in the order they were written.")],
    out: Annotated[Path, typer.Option(help="Folder of the new artifact, below a models folder.")],
    artifact: Annotated[
        Path | None,
        typer.Option(help="Artifact to start from; default: the stable one below ./models."),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name
        Format, typer.Option(help="How files are read; auto goes by their names.")
    ] = Format.AUTO,
) -> None:
    """Fit the codec to your own texts: the same vectors, far smaller patches."""
    console = Console()
    try:
        with console.status("fitting"):
            report = collection.fit(
                artifact or find_artifact(), _texts(files, format), folder=out, name=out.name
            )
    except VersoError as exc:
        console.print(f"{exc.code}: {exc.detail}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from exc
    table = Table("codec", "bytes a chunk", title=f"{report.held_out:,} chunks held out")
    table.add_row("as they are", f"{report.raw:.1f}")
    for when, sizes in (("before", report.before), ("fitted", report.after)):
        for codec, size in sizes.items():
            table.add_row(f"{codec}, {when}", f"{size:.1f}")
    console.print(table)
    console.print(f"written: {out}", highlight=False)


def _texts(files: list[Path], how: Format) -> Iterator[bytes]:
    for path in files:
        try:
            with path.open("rb") as stream:
                for document in read(stream, str(path), how=how, metadata={}):
                    text = document.text
                    yield text.encode() if isinstance(text, str) else text
        except OSError as exc:
            raise RequestInvalid(f"expected a file of texts at {path}, got {exc.strerror}") from exc
