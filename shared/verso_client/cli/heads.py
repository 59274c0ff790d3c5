"""Commands of heads: ask and train them; ``verso train`` and ``verso models``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from verso_client.cli.drawing import Line, chart
from verso_client.cli.filters import FilterJson, Where, filter_of
from verso_client.cli.render import excerpt
from verso_client.cli.terminal import (
    AsJson,
    Collection,
    Exit,
    Since,
    Until,
    fail,
    out,
    print_json,
)
from verso_client.cli.terminal import client as connected
from verso_client.client import Client
from verso_client.operations.heads import CSV, NDJSON, Training
from verso_core.errors import TextNotEncodable, TrainingDataInvalid
from verso_core.heads import Portion, Task
from verso_core.jobs import Status
from verso_core.jobs.heads.answer import Answered
from verso_core.jobs.heads.classify import Classified
from verso_core.jobs.heads.listing import HeadInfo
from verso_core.jobs.heads.report import HeadFigures
from verso_core.jobs.registry import ComparisonState, RegistryState, RolloutState
from verso_core.registry import SHARE, Channel


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
    raise typer.Exit(Exit.of(sum(one.error is not None for one in found), len(found)))


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
    where: Where = None,
    filter: FilterJson = None,  # noqa: A002 - the option's name
    since: Since = None,
    until: Until = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from texts or a collection; status 1 if there is no answer."""
    chosen = filter_of(where, filter, since=since, until=until)
    with connected(context) as client:
        found = client.answer(
            question,
            contexts=texts or None,
            collection=None if texts else collection,
            head=head,
            limit=limit,
            top_k=top,
            filter=chosen,
        )
    print_json(found) if as_json else _answered(out(), found)
    if not found.answered:
        raise typer.Exit(1)


def score(
    context: typer.Context,
    first: Annotated[str, typer.Argument(help="A text.")],
    second: Annotated[str, typer.Argument(help="Another.")],
    head: Annotated[str, typer.Option(help="Head that scores pairs.")] = "similarity",
) -> None:
    """Score how well two texts fit each other."""
    with connected(context) as client:
        [found] = client.score([(first, second)], head=head)
    typer.echo(f"{found:.4f}")


def rerank(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What the documents are ordered by.")],
    documents: Annotated[list[str], typer.Argument(help="Texts; - reads lines.")],
    head: Annotated[str, typer.Option(help="Head that scores pairs.")] = "relevance",
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
    table = Table("score", "position", "text")
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
    svg: Annotated[
        Path | None, typer.Option(help="Draw risk against coverage into this file, with --report.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the heads: task, version, labels, figures."""
    if report is not None:
        if name is None:
            raise typer.BadParameter("expected the name of a head with --report")
        with connected(context) as client:
            typer.echo(client.head_report(name, channel=report))
            if svg is not None:
                svg.write_text(_drawn(name, client.head_figures(name, channel=report)))
        return
    if svg is not None:
        raise typer.BadParameter("expected --report with --svg")
    with connected(context) as client:
        found = client.heads() if name is None else [client.head(name)]
    print_json(found) if as_json else _heads(out(), found)


def _drawn(name: str, figures: HeadFigures) -> str:
    """Return risk against coverage as SVG, the signal that labels are accepted by first."""
    if not figures.risk_coverage:
        fail("figures", f"{name} has no risk to draw: it does not classify")
    curves = sorted(figures.risk_coverage, key=lambda one: one.signal != figures.accept_by)
    return chart(
        f"{name}: risk against coverage",
        [
            Line(
                one.signal.value.replace("_", " "),
                [100 * share for share in one.coverage],
                [100 * share for share in one.risk],
            )
            for one in curves
        ],
        x_label="part of the rows, the surest first, %",
        y_label="wrong among them, %",
    )


def _lines(texts: Sequence[str]) -> list[str]:
    if list(texts) != ["-"]:
        return list(texts)
    try:
        read = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as exc:
        raise TextNotEncodable("expected UTF-8 on standard input") from exc
    # Not by splitlines: U+2028 and others stand within a line, as every other program counts them.
    return [line for one in read.split("\n") if (line := one.removesuffix("\r"))]


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
        source = part.id if part.id is not None else f"context {part.context}"
        page = "" if part.page is None else f" page {part.page}"
        where = f"{source}{page} {part.start_byte}:{part.end_byte}"
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


train_app = typer.Typer(no_args_is_help=True, help="Train on your own data.")
models_app = typer.Typer(no_args_is_help=True, help="See which models serve; promote, roll back.")

Head = Annotated[
    str | None, typer.Argument(help="Name of a head; left out, the artifact.", show_default=False)
]
Examples = Annotated[
    Path | None,
    typer.Option(
        help="Rows or pairs as .csv or .jsonl, groups as .jsonl, questions as SQuAD's .json.",
        dir_okay=False,
    ),
]
Labels = Annotated[str | None, typer.Option(help="Metadata key of the records' labels.")]
Recipe = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the recipe: classify.hidden=64")
]
Share = Annotated[float, typer.Option(min=0, max=1, help="Share of the jobs that try it.")]


@train_app.command("head")
def train_head(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the head.")],
    data: Examples = None,
    task: Annotated[Task, typer.Option(help="Task of the head.")] = Task.CLASSIFY,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Train on a collection's records.")
    ] = None,
    label_key: Labels = None,
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column or key of the label.")] = "label",
    recipe: Recipe = None,
    share: Share = SHARE,
    new_labels: Annotated[
        bool, typer.Option("--new-labels", help="The labels may differ from the stable version's.")
    ] = False,
    licence: Annotated[str, typer.Option(help="Licence of the data.")] = "unknown",
    wait: Annotated[bool, typer.Option(help="Follow the training to its end.")] = True,
    as_json: AsJson = False,
) -> None:
    """Train a head and publish it as a canary."""
    if (data is None) == (collection is None) or (collection is None) != (label_key is None):
        raise typer.BadParameter("expected --data, or --collection with --label-key")
    if task is not Task.CLASSIFY and data is None:
        raise typer.BadParameter(f"expected --data for a head to {task}")
    content = None if data is None else _read(data)
    asked = content is not None and task is Task.ANSWER
    training = Training(
        head=name,
        squad=_questions(content) if asked else None,
        file=None if asked else content,
        media_type=CSV if data is not None and data.suffix == ".csv" else NDJSON,
        task=task,
        collection=collection,
        label_key=label_key,
        recipe=settings(recipe or ()),
        share=share,
        new_labels=new_labels,
        licence=licence,
        columns=(text_column, label_column),
    )
    with connected(context) as verso:
        job = verso.train(training)
        if not wait:
            print_json(job) if as_json else out().print(f"job {job.id}", highlight=False)
            return
        result = _followed(verso, job.id, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    out().print(
        f"head {result['head']} {result['version']} is the canary: "
        f"verso models promote {result['head']}",
        highlight=False,
    )


def _followed(verso: Client, job_id: str, *, quiet: bool) -> dict[str, object]:
    """Show a training's progress until it ends, and return its result."""
    for event in verso.events(job_id):
        progress = event.data.get("progress")
        if progress and not quiet:
            out().print(_line(progress), highlight=False)
    job = verso.wait(job_id)
    if job.status is not Status.SUCCEEDED:
        raise job.exception()
    [result] = verso.results(job_id)
    return result


@models_app.command("list")
def list_models(context: typer.Context, as_json: AsJson = False) -> None:
    """List what the channels serve."""
    with connected(context) as verso:
        state = verso.registry()
    print_json(state) if as_json else _show(state)


@models_app.command("show")
def show_model(context: typer.Context, head: Head = None) -> None:
    """Show the channels of a head, or of the artifact, in full."""
    with connected(context) as verso:
        state = verso.registry()
        if head is not None and head not in state.heads:
            fail("head_unknown", f"no head {head!r}; there are {sorted(state.heads)}")
    print_json(state.artifact if head is None else state.heads[head])
    for worker in state.workers:
        typer.echo(json.dumps(worker, indent=2))


@models_app.command("promote")
def promote(context: typer.Context, head: Head = None, as_json: AsJson = False) -> None:
    """Make the canary stable."""
    with connected(context) as verso:
        state = verso.promote(head)
    print_json(state) if as_json else _show(state)


@models_app.command("rollback")
def rollback(context: typer.Context, head: Head = None, as_json: AsJson = False) -> None:
    """Withdraw the canary; without one, return to the version that was stable before."""
    with connected(context) as verso:
        state = verso.rollback(head)
    print_json(state) if as_json else _show(state)


def settings(given: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """Read ``a.b=value`` settings into nested objects; a value is JSON, or else a string."""
    found: dict[str, Any] = {}
    for pair in given:
        path, equals, value = pair.partition("=")
        if not equals or not path:
            raise typer.BadParameter(f"expected key=value, got {pair!r}")
        *outer, last = path.split(".")
        table = found
        for name in outer:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise typer.BadParameter(f"{name} is a value and a table in {pair!r}")
        try:
            table[last] = json.loads(value)
        except ValueError:
            table[last] = value
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        fail("file", f"{error.strerror}: {path}")


def _questions(content: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(content or b"")
    except ValueError as error:
        fail(TrainingDataInvalid.code, f"expected a JSON file as SQuAD is: {error}")
    if not isinstance(found, dict):
        fail(TrainingDataInvalid.code, f"expected a JSON object, got {type(found).__name__}")
    return found


def _line(progress: dict[str, Any]) -> str:
    figures = "  ".join(
        f"{name} {value:.4g}" for name, value in progress.get("metrics", {}).items()
    )
    return (
        f"{progress.get('stage', ''):<8}{100 * float(progress.get('share', 0)):5.1f} %  {figures}"[
            :160
        ]
    )


def _show(state: RegistryState) -> None:
    table = Table("what", "stable", "canary", "share", "compared", "previous", "withdrawn")
    for name, rollout in [("artifact", state.artifact), *sorted(state.heads.items())]:
        table.add_row(*_row(name, rollout))
    out().print(table)
    for worker in state.workers:
        for refused in worker.get("artifact", {}).get("refused", ()):
            error = refused["error"]
            out().print(
                f"{worker['worker']}: {refused['channel']} {refused['name']} is refused: "
                f"{error['code']}: {error['detail']}",
                highlight=False,
                markup=False,
            )


def _compared(found: ComparisonState | None) -> str:
    """Say how a canary compares with the stable version."""
    if found is None:
        return "-"
    parts = []
    if found.agreed + found.differed:
        parts.append(f"agrees {found.agreed / (found.agreed + found.differed):.0%}")
    if found.p95_ms_canary and found.p95_ms_stable:
        parts.append(f"p95 {found.p95_ms_canary / found.p95_ms_stable:.2f} times")
    if found.brier_canary is not None and found.brier_stable is not None:
        parts.append(f"Brier {found.brier_canary:.3f}, stable {found.brier_stable:.3f}")
    return ", ".join(parts) or "-"


def _row(name: str, rollout: RolloutState) -> tuple[str, ...]:
    gone = rollout.withdrawn
    return (
        name,
        rollout.stable or "-",
        rollout.canary or "-",
        f"{rollout.share:g}" if rollout.canary else "-",
        _compared(rollout.comparison),
        rollout.previous or "-",
        "-" if gone is None else f"{gone.version}: {gone.reason}",
    )
