"""Commands that ask heads: classify, answer, score, rerank, heads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from verso_client.cli.render import excerpt
from verso_client.cli.terminal import AsJson, Collection, out, print_json
from verso_client.cli.terminal import client as connected
from verso_core.heads import Portion
from verso_core.jobs.heads import Answered, Classified, HeadInfo
from verso_core.registry import Channel


def classify(
    context: typer.Context,
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts; - reads lines from standard input.")
    ] = None,
    head: Annotated[
        list[str] | None, typer.Option("--head", help="Head to ask; may be given several times.")
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Stored document or record instead of a text.")
    ] = None,
    collection: Collection = "default",
    top: Annotated[int, typer.Option("--top", min=1, help="Labels to show.")] = 3,
    signals: Annotated[bool, typer.Option(help="Show every confidence signal.")] = False,
    accept_error: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Withhold labels: at most this share may be wrong."),
    ] = None,
    chunk: Annotated[
        Portion | None, typer.Option(help="Which chunks of a long text are read.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Classify texts or stored records, with a confidence; status 1 if one fails."""
    if bool(texts) == bool(ids) or not head:
        raise typer.BadParameter("expected --head, and either texts or --id")
    given = _lines(texts or [])
    with connected(context) as client:
        found = client.classify(
            head,
            texts=None if ids else given,
            ids=ids or None,
            collection=collection,
            top_k=top,
            signals=signals,
            accept_error=accept_error,
            chunk=chunk,
        )
    print_json(found) if as_json else _classified(out(), found, ids or given)
    if any(one.error is not None for one in found):
        raise typer.Exit(1)


def answer(
    context: typer.Context,
    question: Annotated[str, typer.Argument(help="What to ask.")],
    texts: Annotated[
        list[str] | None, typer.Option("--context", help="Text to read; else the collection.")
    ] = None,
    collection: Collection = "default",
    head: Annotated[str, typer.Option(help="Head that answers.")] = "qa",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Records read.")] = 5,
    top: Annotated[int, typer.Option("--top", min=1, max=50, help="Answers to show.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Answer a question from texts or a collection; status 1 if there is no answer."""
    with connected(context) as client:
        found = client.answer(
            question,
            contexts=texts or None,
            collection=None if texts else collection,
            head=head,
            limit=limit,
            top_k=top,
        )
    print_json(found) if as_json else _answered(out(), found)
    if not found.answered:
        raise typer.Exit(1)


def score(
    context: typer.Context,
    first: Annotated[str, typer.Argument(help="A text.")],
    second: Annotated[str, typer.Argument(help="Another.")],
    head: Annotated[str, typer.Option(help="Head that scores pairs.")] = "pairs",
) -> None:
    """Score how well two texts fit each other."""
    with connected(context) as client:
        [found] = client.score([(first, second)], head=head)
    typer.echo(f"{found:.4f}")


def rerank(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What the documents are ordered by.")],
    documents: Annotated[list[str], typer.Argument(help="Texts; - reads lines.")],
    head: Annotated[str, typer.Option(help="Head that scores pairs.")] = "pairs",
    top: Annotated[int | None, typer.Option("--top", min=1, help="Documents to show.")] = None,
    as_json: AsJson = False,
) -> None:
    """Order texts by how well they fit a query, best first."""
    given = _lines(documents)
    with connected(context) as client:
        found = client.rerank(query, given, head=head, top_n=top)
    if as_json:
        print_json(found)
        return
    table = Table("score", "place", "text")
    for one in found:
        text = excerpt(given[one.index].encode())
        table.add_row(f"{one.relevance_score:.3f}", str(one.index), text)
    out().print(table)


def heads(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One head; default all.")] = None,
    report: Annotated[
        Channel | None, typer.Option(help="Print the report of what this channel serves.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the heads: task, version, labels, figures."""
    if report is not None:
        if name is None:
            raise typer.BadParameter("expected the name of a head with --report")
        with connected(context) as client:
            typer.echo(client.head_report(name, channel=report))
        return
    with connected(context) as client:
        found = client.heads() if name is None else [client.head(name)]
    print_json(found) if as_json else _heads(out(), found)


def _lines(texts: Sequence[str]) -> list[str]:
    if list(texts) == ["-"]:
        return [line for line in sys.stdin.read().splitlines() if line]
    return list(texts)


def _classified(console: Console, found: Sequence[Classified], asked: Sequence[str]) -> None:
    table = Table("label", "confidence", "head", "of")
    for one, name in zip(found, asked, strict=True):
        about = excerpt(name.encode("utf-8", "replace"))
        if one.error is not None:
            table.add_row(Text(f"{one.error.code}: {one.error.detail}", style="red"), "", "", about)
        for head in one.heads:
            best = head.scores[0].label
            label = Text(f"(withheld: {best}?)", style="dim") if head.label is None else Text(best)
            table.add_row(label, f"{head.confidence:.3f}", escape(head.head), about)
    console.print(table)


def _answered(console: Console, found: Answered) -> None:
    if not found.answered:
        console.print("no answer; the best parts are")
    table = Table("above null", "answer", "where")
    for part in found.answers:
        place = part.id if part.id is not None else f"context {part.context}"
        where = f"{place} {part.start_byte}:{part.end_byte}"
        table.add_row(f"{part.score - part.null_score:+.2f}", excerpt(part.data), escape(where))
    console.print(table)


def _heads(console: Console, found: Sequence[HeadInfo]) -> None:
    table = Table("head", "channel", "task", "reads", "version", "labels")
    for one in found:
        for channel, version in (("stable", one.stable), ("canary", one.canary)):
            if version is None:
                continue
            what = ", ".join(version.labels[:6]) + (" ..." if len(version.labels) > 6 else "")
            if version.error is not None:
                what = f"{version.error.code}: {version.error.detail}"
            cells = (one.name, channel, version.task or "-", version.reads or "-", version.version)
            table.add_row(*map(escape, cells), Text(what))
    console.print(table)
