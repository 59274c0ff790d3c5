"""Commands of an operator: collections, jobs, statistics, the scrub and migrations."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from verso_client.cli import render
from verso_client.cli.drawing import Bars, bars
from verso_client.cli.terminal import AsJson, client, failures_reported, out, print_json
from verso_core.jobs import (
    CodecPolicy,
    CollectionKind,
    IndexKind,
    Kind,
    Precision,
    SearchMode,
    SearchSetting,
    Status,
    TextPolicy,
)
from verso_core.jobs.collections import Rollover
from verso_core.jobs.statistics import Statistics

_LOOK_S = 1.0
Name = Annotated[str | None, typer.Argument(help="Name of the collection.")]
CollectionOption = Annotated[
    str | None, typer.Option("--collection", "-c", help="The same, as an option.")
]

Indexes = Annotated[
    list[str] | None,
    typer.Option("--index", help="key=keyword (strings, booleans) or key=number to index."),
]

AutoFit = Annotated[
    bool | None,
    typer.Option("--auto-fit/--no-auto-fit", help="Fit its codec to its own texts."),
]

collections_app = typer.Typer(
    no_args_is_help=True, help="Create, list, show, change, fit and delete collections."
)
jobs_app = typer.Typer(no_args_is_help=True, help="List, show, follow, cancel and replay jobs.")


@collections_app.command("list")
def list_collections(context: typer.Context, as_json: AsJson = False) -> None:
    """List all collections."""
    with client(context) as platform:
        found = platform.collections()
    print_json(found) if as_json else render.collections(out(), found)


@collections_app.command("create")
def create_collection(
    context: typer.Context,
    name: str,
    kind: Annotated[CollectionKind | None, typer.Option(help="Of texts, or of log lines.")] = None,
    precision: Annotated[Precision | None, typer.Option(help="How its vectors are stored.")] = None,
    text_policy: Annotated[
        TextPolicy | None, typer.Option(help="patch drops the texts, both keeps them too.")
    ] = None,
    hybrid: Annotated[
        bool | None, typer.Option("--hybrid/--dense", help="Keep words too, and search by both.")
    ] = None,
    codec_policy: Annotated[
        CodecPolicy | None, typer.Option(help="What codecs are chosen by: size, speed or both.")
    ] = None,
    index: Indexes = None,
    retention_days: Annotated[
        float | None, typer.Option(help="Delete documents whose time is longer ago.")
    ] = None,
    auto_fit: AutoFit = None,
    artifact: Annotated[
        str | None, typer.Option(help="Artifact that makes its vectors, of those that serve.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Spread its documents over so many, on all ledgers.")
    ] = None,
    rollover_s: Annotated[
        float | None, typer.Option(help="Of log lines: a new partition after so many seconds.")
    ] = None,
    rollover_bytes: Annotated[
        int | None, typer.Option(help="Of log lines: a new partition after so many bytes.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a collection."""
    with client(context) as platform:
        made = platform.create_collection(
            name,
            kind=kind,
            precision=precision,
            text_policy=text_policy,
            search=_search_setting(hybrid),
            codec_policy=codec_policy,
            indexes=_indexes(index) or None,
            retention_days=retention_days,
            auto_fit=auto_fit,
            artifact=artifact,
            partitions=partitions,
            rollover=_rollover(rollover_s, rollover_bytes),
        )
    print_json(made) if as_json else render.collections(out(), [made])


def _rollover(span_s: float | None, max_bytes: int | None) -> Rollover | None:
    given = {"span_s": span_s, "max_bytes": max_bytes}
    named = {name: value for name, value in given.items() if value is not None}
    return Rollover.model_validate(named) if named else None


def _search_setting(hybrid: bool | None) -> SearchSetting | None:
    if hybrid is None:
        return None
    return SearchMode.HYBRID if hybrid else SearchMode.DENSE


@collections_app.command("change")
def change_collection(
    context: typer.Context,
    name: str,
    index: Indexes = None,
    retention_days: Annotated[
        float | None,
        typer.Option(help="Delete documents whose time is longer ago; 0 keeps all again."),
    ] = None,
    codec_policy: Annotated[
        CodecPolicy | None, typer.Option(help="What codecs of new records are chosen by.")
    ] = None,
    auto_fit: AutoFit = None,
    as_json: AsJson = False,
) -> None:
    """Add indexes to a collection, or change its codec policy, fits, or how many days it keeps."""
    change: dict[str, Any] = {"indexes": _indexes(index)} if index else {}
    if retention_days is not None:
        change["retention_days"] = retention_days or None
    if codec_policy is not None:
        change["codec_policy"] = codec_policy
    if auto_fit is not None:
        change["auto_fit"] = auto_fit
    if not change:
        raise typer.BadParameter("expected --index, --retention-days, --codec-policy or --auto-fit")
    with client(context) as platform:
        changed = platform.change_collection(name, **change)
    print_json(changed) if as_json else render.collections(out(), [changed])


def _indexes(given: list[str] | None) -> dict[str, IndexKind]:
    """Return ``key=keyword`` and ``key=number`` arguments as a mapping."""
    found = {}
    for one in given or []:
        key, _, kind = one.rpartition("=")
        if not key or kind not in list(IndexKind):
            raise typer.BadParameter(f"expected key=keyword or key=number, got {one!r}")
        found[key] = IndexKind(kind)
    return found


@collections_app.command("fit")
def fit_collection(context: typer.Context, name: str, as_json: AsJson = False) -> None:
    """Fit a collection's codec to its newest texts now, whether or not that is due."""
    with client(context) as platform:
        found = platform.fit(name)
    print_json(found) if as_json else render.fitted(out(), found)


@collections_app.command("delete")
def delete_collection(
    context: typer.Context,
    name: str,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a collection and all its documents."""
    if not yes:
        typer.confirm(f"Delete the collection {name} and every document in it?", abort=True)
    with client(context) as platform:
        platform.delete_collection(name)


@jobs_app.command("list")
def list_jobs(
    context: typer.Context,
    status: Annotated[Status | None, typer.Option(help="Only in this state.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    reads: Annotated[bool, typer.Option("--reads", help="Searches and other reads too.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first; `--status dead` shows what waits for a replay."""
    with client(context) as platform:
        found = platform.jobs(status=status, kind=kind, reads=reads, limit=limit)
    if as_json:
        print_json(found)
        return
    for job in found:
        render.job(out(), job)


@jobs_app.command("replay-dead")
def replay_dead_jobs(context: typer.Context) -> None:
    """Replay all dead jobs with a new budget of attempts, and list them."""
    with client(context) as platform:
        for job_id in platform.replay_dead():
            typer.echo(job_id)


@jobs_app.command("show")
def show_job(context: typer.Context, job_id: str, as_json: AsJson = False) -> None:
    """Show a job's state."""
    with client(context) as platform:
        job = platform.job(job_id)
    print_json(job) if as_json else render.job(out(), job)


@jobs_app.command("follow")
def follow_job(context: typer.Context, job_id: str, as_json: AsJson = False) -> None:
    """Follow a job until it ends; exit status 1 unless it succeeded."""
    with client(context) as platform:
        for event in platform.events(job_id):
            if as_json:
                typer.echo(json.dumps(event.model_dump(mode="json")))
            else:
                render.event(out(), event)
        job = platform.job(job_id)
    if not as_json:
        render.job(out(), job)
    if job.status is not Status.SUCCEEDED:
        raise typer.Exit(1)


@jobs_app.command("cancel")
def cancel_job(context: typer.Context, job_id: str, as_json: AsJson = False) -> None:
    """Cancel a job: work that has not started never will."""
    with client(context) as platform:
        job = platform.cancel(job_id)
    print_json(job) if as_json else render.job(out(), job)


@jobs_app.command("replay")
def replay_job(context: typer.Context, job_id: str, as_json: AsJson = False) -> None:
    """Replay a dead job with a new budget of attempts."""
    with client(context) as platform:
        job = platform.replay(job_id)
    print_json(job) if as_json else render.job(out(), job)


def stats(
    context: typer.Context,
    name: Name = None,
    collection: CollectionOption = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the bytes into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a collection holds, in counts and bytes; default: the collection `default`."""
    _show(context, name, collection, as_json=as_json, svg=svg)


@collections_app.command("show")
def show_collection(
    context: typer.Context,
    name: Name = None,
    collection: CollectionOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a collection's settings and what it holds, as `verso stats` does."""
    _show(context, name, collection, as_json=as_json)


def _show(
    context: typer.Context,
    name: str | None,
    collection: str | None,
    *,
    as_json: bool,
    svg: Path | None = None,
) -> None:
    if name is not None and collection is not None and name != collection:
        raise typer.BadParameter(f"expected one collection, got {name} and {collection}")
    with client(context) as platform:
        found = platform.stats(name or collection or "default")
    if svg is not None:
        with failures_reported():
            svg.write_text(_drawn(found))
    print_json(found) if as_json else render.statistics(out(), found)


_PARTS = {
    "patches and hashes": "bytes_entries",
    "lines": "bytes_lines",
    "texts kept": "bytes_texts",
    "fitted tables": "bytes_fitted",
    "vectors": "bytes_vectors",
    "index over vectors": "bytes_index",
    "words and their index": "bytes_words",
    "ids and metadata": "bytes_points",
    "cold storage": "bytes_cold",
}


def _drawn(found: Statistics) -> str:
    """Return the bytes of a collection as SVG: its texts, and what is kept in their place."""
    kept = {} if found.kept is None else found.kept.model_dump()
    parts = [(name, kept.get(field) or 0) for name, field in _PARTS.items()]
    rows = [
        ("texts that were taken in", found.bytes_text),
        *((n, size) for n, size in parts if size),
    ]
    return bars(
        f"{found.name}: {found.documents:,} documents",
        [Bars(name, [size / 1e6]) for name, size in rows],
        series=["bytes"],
        label="MB",
    )


def scrub(
    context: typer.Context,
    now: Annotated[bool, typer.Option("--now", help="Request a pass at once.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the newest scrub found; status 1 if a record is damaged."""
    with client(context) as platform:
        found = platform.scrub(now=now)
    print_json(found) if as_json else render.scrub(out(), found)
    if found.damaged:
        raise typer.Exit(1)


def ledgers(
    context: typer.Context,
    drain: Annotated[
        str | None, typer.Option(help="Make no new collection on the ledger of this name.")
    ] = None,
    move: Annotated[
        bool, typer.Option("--move", help="With --drain: move what it has to the others.")
    ] = False,
    open_: Annotated[
        str | None, typer.Option("--open", help="Make new collections on it again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the ledgers of the platform; status 1 if one does not answer."""
    with client(context) as platform:
        found = platform.ledgers()
        if drain is not None:
            found = platform.drain_ledger(drain, move=move)
        if open_ is not None:
            found = platform.drain_ledger(open_, draining=False)
    print_json(found) if as_json else render.ledgers(out(), found)
    if not all(one.answers for one in found):
        raise typer.Exit(1)


def move(
    context: typer.Context,
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    ledger: Annotated[
        str | None, typer.Option(help="Name of the ledger that gets it; without it: show the move.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Cancel the move.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has ended.")] = True,
    as_json: AsJson = False,
) -> None:
    """Move a collection to another ledger while it is used."""
    with client(context) as platform:
        if stop:
            found = platform.end_move(collection)
        elif ledger is None:
            found = platform.move_state(collection)
        else:
            found = platform.move(collection, ledger)
        while wait and ledger is not None and found.ended is None:
            time.sleep(_LOOK_S)
            found = platform.move_state(collection)
    print_json(found) if as_json else render.move(out(), found)


def migrate(
    context: typer.Context,
    collection: Annotated[str, typer.Argument(help="Name of the collection.")],
    to: Annotated[
        str, typer.Option("--to", help="current, a codec id, or an artifact id.")
    ] = "current",
    precision: Annotated[
        Precision | None, typer.Option(help="How its vectors will be stored.")
    ] = None,
    hybrid: Annotated[
        bool | None, typer.Option("--hybrid/--dense", help="Keep words too, or no words any more.")
    ] = None,
    codec_policy: Annotated[
        CodecPolicy | None, typer.Option(help="What its codecs will be chosen by.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show its state.")] = False,
    remove_old: Annotated[
        bool,
        typer.Option("--remove-old", help="Remove the old side, or cancel a migration under way."),
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has ended.")] = True,
    as_json: AsJson = False,
) -> None:
    """Move a collection to another artifact or settings while it is used; status 1 if blocked."""
    with client(context) as platform:
        if remove_old:
            platform.end_migration(collection)
            return
        found = (
            platform.migration(collection)
            if show
            else platform.migrate(
                collection,
                to=to,
                precision=precision,
                search=_search_setting(hybrid),
                codec_policy=codec_policy,
            )
        )
        while wait and not show and found.running:
            time.sleep(_LOOK_S)
            found = platform.migration(collection)
    print_json(found) if as_json else render.migration(out(), found)
    if found.stage == "blocked":
        raise typer.Exit(1)
