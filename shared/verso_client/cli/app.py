"""The `verso` command line.

Commands speak HTTP to a platform, by default the one on this machine. An expected failure is one
line on standard error, "code: what was expected and what came", and an exit status of
:class:`~verso_client.cli.terminal.Exit`. Other packages add commands through the entry-point group
"verso.commands".
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from verso_client.cli import admin, evaluation, heads, render, sources
from verso_client.cli.admin import collections_app, jobs_app
from verso_client.cli.browser import open_console
from verso_client.cli.converting import convert
from verso_client.cli.doctor import doctor
from verso_client.cli.documents import documents_app, facets
from verso_client.cli.filters import FilterJson, Where, filter_of
from verso_client.cli.heads import models_app, train_app
from verso_client.cli.ingest import ingest
from verso_client.cli.keys import keys_app
from verso_client.cli.logs import logs
from verso_client.cli.mcp import mcp
from verso_client.cli.tail import tail
from verso_client.cli.terminal import (
    INGEST_PATIENCE_S,
    AsJson,
    Collection,
    Exit,
    Since,
    Target,
    Until,
    bar,
    fail,
)
from verso_client.cli.terminal import client as _client
from verso_client.cli.terminal import failures_reported as _failures_reported
from verso_client.cli.terminal import out as _out
from verso_client.cli.terminal import print_json as _print_json
from verso_client.exchange import DEFAULT_URL
from verso_core import DISTRIBUTION
from verso_core.errors import DocumentUnknown, IdInvalid
from verso_core.jobs import RERANK_SHARE, Precision, SearchMode
from verso_core.jobs.cluster import ClusterRequest, Method

PLUGINS = "verso.commands"
"""Entry points that are commands of other packages."""

TEXTS = "Texts"
HEADS = "Heads and models"
CONTENTS = "Collections and jobs"
PLATFORM = "The platform"
"""Groups of commands in the help."""
NAMES = {"open_console": "open"}
"""Commands whose names are not those of their functions."""


class _Commands(TyperGroup):
    """The commands; what none of them reports is reported here, such as a full disk at the end."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the arguments; ``--version`` and ``--help`` are answered here."""
        with _failures_reported():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        with _failures_reported():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keep a text's vector for search, drop the text, read it back byte for byte.",
)
eval_app = typer.Typer(no_args_is_help=True, help="Measure the platform on data at hand.")
for group, group_name, panel in (
    (collections_app, "collections", CONTENTS),
    (documents_app, "documents", CONTENTS),
    (jobs_app, "jobs", CONTENTS),
    (train_app, "train", HEADS),
    (models_app, "models", HEADS),
    (keys_app, "keys", PLATFORM),
    (eval_app, "eval", PLATFORM),
):
    app.add_typer(group, name=group_name, rich_help_panel=panel)

Reranker = Annotated[
    str | None, typer.Option("--rerank", help="Head that reorders the first hits, such as alike.")
]
Rerankers = Annotated[
    list[str] | None,
    typer.Option("--rerank", help="Head that reorders the first hits; may be given several times."),
]
RerankFrom = Annotated[
    int, typer.Option("--rerank-from", min=1, max=256, help="How many of them it reorders.")
]
RerankShare = Annotated[
    float, typer.Option("--rerank-share", min=0, max=1, help="Weight of the head's score.")
]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"verso {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def target(
    context: typer.Context,
    url: Annotated[
        str, typer.Option(envvar="VERSO_URL", help="Address of the gateway.")
    ] = DEFAULT_URL,
    key: Annotated[
        str | None, typer.Option(envvar="VERSO_API_KEY", help="API key, where one is needed.")
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds to try again while it is busy or restarts; default 10, ingest 600."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for a platform that does not answer yet.")
    ] = False,
    version: Annotated[  # noqa: ARG001 - done by its callback
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Choose the platform that the commands call."""
    context.obj = Target(url, key, patience, wait)


app.command(rich_help_panel=TEXTS)(ingest)


@app.command(rich_help_panel=TEXTS)
def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What to look for.")],
    collection: Collection = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000)] = 10,
    where: Where = None,
    filter: FilterJson = None,  # noqa: A002 - the option's name
    since: Since = None,
    until: Until = None,
    mode: Annotated[
        SearchMode | None,
        typer.Option(help="Compare vectors, words, or both; default: what the collection keeps."),
    ] = None,
    text: Annotated[bool, typer.Option(help="Read the hits' texts back.")] = True,
    rerank: Reranker = None,
    rerank_from: RerankFrom = 30,
    rerank_share: RerankShare = RERANK_SHARE,
    as_json: AsJson = False,
) -> None:
    """Find the records nearest to a text."""
    chosen = filter_of(where, filter, since=since, until=until)
    with _client(context) as client:
        started = time.monotonic()
        found = client.search(
            query,
            collection=collection,
            limit=limit,
            mode=mode,
            filter=chosen,
            with_text=text,
            rerank=rerank,
            rerank_from=rerank_from,
            rerank_share=rerank_share,
        )
        took_ms = (time.monotonic() - started) * 1000
    if as_json:
        _print_json(found)
    else:
        render.hits(_out(), found, took_ms=took_ms)


app.command(rich_help_panel=TEXTS)(logs)
app.command(rich_help_panel=TEXTS)(tail)


@app.command(rich_help_panel=TEXTS)
def cluster(
    context: typer.Context,
    collection: Collection = "default",
    method: Annotated[
        Method | None,
        typer.Option(
            help="By vectors, or log lines by their templates; default: dbscan, templates of lines."
        ),
    ] = None,
    eps: Annotated[float, typer.Option(help="dbscan: cosine distance of neighbours.")] = 0.15,
    min_samples: Annotated[
        int, typer.Option(min=1, max=1000, help="Neighbours, itself included, that make a core.")
    ] = 2,
    min_size: Annotated[
        int, typer.Option(min=2, max=1000, help="hdbscan: records of the smallest group.")
    ] = 2,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000)] = 20,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Group the records of a collection; --since marks groups first seen from that time on."""
    request = ClusterRequest(
        collection=collection,
        method=method,
        eps=eps,
        min_samples=min_samples,
        min_size=min_size,
        limit=limit,
        since=since,
    )
    with _client(context) as client:
        found = client.cluster(request)
    _print_json(found) if as_json else render.clusters(_out(), found)


@app.command(rich_help_panel=TEXTS)
def get(
    context: typer.Context,
    document: Annotated[str, typer.Argument(help="Id of a document, or of a record: id#n.")],
    collection: Collection = "default",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write the bytes to.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one document's exact bytes to standard output."""
    with _client(context) as client:
        stored = client.get(document, collection=collection)
    if as_json:
        _print_json(stored)
    elif output is not None:
        with _failures_reported():
            output.write_bytes(stored.data)
    else:
        sys.stdout.buffer.write(stored.data)
        sys.stdout.buffer.flush()


@app.command(rich_help_panel=TEXTS)
def reconstruct(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Documents or records to read.")] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            help="Guess instead: JSON file of one vector or a list of vectors; - reads it."
        ),
    ] = None,
    beam: Annotated[int, typer.Option(min=1, max=16, help="Width of the search for a guess.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, max=127, help="Longest guess.")] = 127,
    collection: Collection = "default",
    as_json: AsJson = False,
) -> None:
    """Read documents back exactly, or guess the texts of bare vectors."""
    if bool(ids) == (vectors is not None):
        raise typer.BadParameter("expected ids or --vectors, and not both")
    with _client(context) as client:
        if vectors is not None:
            bare = sources.vectors(vectors)
            guesses = client.guess(bare, beam=beam, max_tokens=max_tokens)
            _print_json(guesses) if as_json else render.guesses(_out(), guesses)
            return
        texts = client.reconstruct(ids or [], collection=collection)
    _print_json(texts) if as_json else render.texts(_out(), texts)
    raise typer.Exit(Exit.of(sum(text.error is not None for text in texts), len(texts)))


@app.command(rich_help_panel=TEXTS)
def delete(
    context: typer.Context,
    documents: Annotated[list[str], typer.Argument(help="Ids of the documents.")],
    collection: Collection = "default",
) -> None:
    """Delete documents: they are gone from reads and searches at once."""
    unknown = 0
    with _client(context) as client:
        for document in documents:
            try:
                client.delete(document, collection=collection)
            except (DocumentUnknown, IdInvalid) as error:
                typer.echo(f"{error.code}: {error.detail}", err=True)
                unknown += 1
    raise typer.Exit(Exit.of(unknown, len(documents)))


@eval_app.command("retrieval")
def evaluate_retrieval(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="Folder in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/.")
    ],
    split: Annotated[str, typer.Option(help="Which questions: qrels/SPLIT.tsv.")] = "test",
    precision: Annotated[Precision, typer.Option(help="How vectors are stored.")] = Precision.INT4,
    patience: Annotated[
        float, typer.Option(min=1, help="Longest wait for all texts to be verified, seconds.")
    ] = 7200.0,
    rerank: Rerankers = None,
    rerank_from: RerankFrom = 30,
    rerank_share: RerankShare = RERANK_SHARE,
    svg: Annotated[Path | None, typer.Option(help="Draw the quality into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the retrieval quality of a new collection, which is then deleted."""
    if find_spec("ir_measures") is None:
        fail("not_installed", f"expected the extra {DISTRIBUTION}[eval]")
    with _client(context, patience_s=INGEST_PATIENCE_S) as client, bar() as progress:
        given = evaluation.read(folder, split=split)
        task = progress.add_task("ingest", total=len(given.documents))
        report = evaluation.evaluate(
            client,
            given,
            split=split,
            precision=precision,
            patience_s=patience,
            rerankers=[
                evaluation.Reranker(head, scored=rerank_from, share=rerank_share)
                for head in rerank or ()
            ],
            on_progress=lambda state: progress.update(task, completed=state.done),
        )
    if svg is not None:
        with _failures_reported():
            svg.write_text(evaluation.drawn(report))
    _print_json(report) if as_json else render.retrieval(_out(), report)


for panel, commands in (
    (TEXTS, (heads.answer,)),
    (HEADS, (heads.classify, heads.score, heads.rerank, heads.heads, convert)),
    (CONTENTS, (admin.stats, facets, admin.scrub, admin.migrate, admin.ledgers, admin.move)),
    (PLATFORM, (doctor, open_console, mcp)),
):
    for command in commands:
        app.command(NAMES.get(command.__name__), rich_help_panel=panel)(command)


def add_plugins(to: typer.Typer, arguments: Sequence[str] = ()) -> None:
    """Add the commands of other installed packages.

    The client is often installed without the platform: a command whose libraries are missing is
    left out.

    Args:
        to: the app that gets them.
        arguments: of the command line. If they name a command, no other is loaded: the
            platform's libraries take seconds to import, and a search needs none of them.
    """
    plugins = sorted(entry_points(group=PLUGINS), key=lambda entry: entry.name)
    named = [found for found in plugins if found.name.partition(" ")[0] in arguments]
    if named or _names(to).intersection(arguments):
        plugins = named
    for found in plugins:
        try:
            command = found.load()
        except ModuleNotFoundError:
            continue
        group, _, name = found.name.rpartition(" ")
        _group(to, group).command(name, rich_help_panel=None if group else PLATFORM)(command)


def _names(of: typer.Typer) -> set[str]:
    """Return the names of an app's own commands and groups."""
    names = {group.name for group in of.registered_groups if isinstance(group.name, str)}
    for command in of.registered_commands:
        callback = "" if command.callback is None else command.callback.__name__
        names.add(command.name or callback.replace("_", "-"))
    return names


def _group(to: typer.Typer, name: str) -> typer.Typer:
    """Return the group of commands of this name, added if need be; the app itself for ""."""
    if not name:
        return to
    for group in to.registered_groups:
        if group.name == name and group.typer_instance is not None:
            return group.typer_instance
    added = typer.Typer(no_args_is_help=True)
    to.add_typer(added, name=name)
    return added


def main() -> None:
    """Run the command line."""
    _open_streams()
    if isinstance(sys.stdout, TextIOWrapper):  # of texts not every terminal has each character
        sys.stdout.reconfigure(errors="backslashreplace")
    # A shell that completes a line hands it over in a variable: bash, then zsh and fish.
    completed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    add_plugins(app, [*sys.argv[1:], *completed.split()[1:]])
    try:
        app()
    finally:
        _leave_output()


def _open_streams() -> None:
    """Read nothing from streams that were closed before the start, and write nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the end


def _leave_output() -> None:
    """Drop what cannot be written: Python would try again at its end, and say so once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
