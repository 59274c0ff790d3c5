"""``verso train`` and ``verso models``: train heads and roll out what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from verso_client.cli.terminal import AsJson, client, fail, out, print_json
from verso_client.client import Client
from verso_client.operations.training import CSV, NDJSON, Training
from verso_core.errors import TrainingDataInvalid
from verso_core.heads import Task
from verso_core.jobs import Status
from verso_core.jobs.admin import RegistryState, RolloutState
from verso_core.registry import SHARE

train_app = typer.Typer(no_args_is_help=True, help="Train on your own data.")
models_app = typer.Typer(no_args_is_help=True, help="See which models serve; promote, roll back.")

Head = Annotated[
    str | None, typer.Argument(help="Name of a head; left out, the artifact.", show_default=False)
]
Examples = Annotated[
    Path | None,
    typer.Option(
        help="Examples: rows or pairs as .csv or .jsonl, questions as SQuAD's .json.",
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
    task: Annotated[Task, typer.Option(help="What the head is asked to do.")] = Task.CLASSIFY,
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
    with client(context) as verso:
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
    with client(context) as verso:
        state = verso.registry()
    print_json(state) if as_json else _show(state)


@models_app.command("show")
def show_model(context: typer.Context, head: Head = None) -> None:
    """Show everything that is known of a head's channels, or of the artifact's."""
    with client(context) as verso:
        state = verso.registry()
        if head is not None and head not in state.heads:
            fail("head_unknown", f"no head {head!r}; there are {sorted(state.heads)}")
    print_json(state.artifact if head is None else state.heads[head])
    for worker in state.workers:
        typer.echo(json.dumps(worker, indent=2))


@models_app.command("promote")
def promote(context: typer.Context, head: Head = None, as_json: AsJson = False) -> None:
    """Make the canary stable."""
    with client(context) as verso:
        state = verso.promote(head)
    print_json(state) if as_json else _show(state)


@models_app.command("rollback")
def rollback(context: typer.Context, head: Head = None, as_json: AsJson = False) -> None:
    """Take the canary back; without one, go back to what was stable before."""
    with client(context) as verso:
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
        place = found
        for name in outer:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise typer.BadParameter(f"{name} is a value and a table in {pair!r}")
        try:
            place[last] = json.loads(value)
        except ValueError:
            place[last] = value
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
    table = Table("what", "stable", "canary", "share", "previous", "withdrawn")
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


def _row(name: str, rollout: RolloutState) -> tuple[str, ...]:
    gone = rollout.withdrawn
    return (
        name,
        rollout.stable or "-",
        rollout.canary or "-",
        f"{rollout.share:g}" if rollout.canary else "-",
        rollout.previous or "-",
        "-" if gone is None else f"{gone.version}: {gone.reason}",
    )
