"""Commands on jobs: ``verso jobs …``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from verso_client.cli import render
from verso_client.cli.terminal import AsJson, client, out, print_json
from verso_core.jobs import Kind, Status

jobs_app = typer.Typer(no_args_is_help=True, help="Look at jobs, follow, cancel, replay them.")


@jobs_app.command("list")
def list_jobs(
    context: typer.Context,
    status: Annotated[Status | None, typer.Option(help="Only in this state.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only of this kind.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first; `--status dead` shows what waits for a replay."""
    with client(context) as platform:
        found = platform.jobs(status=status, kind=kind, limit=limit)
    if as_json:
        print_json(found)
        return
    for job in found:
        render.job(out(), job)


@jobs_app.command("replay-dead")
def replay_dead_jobs(context: typer.Context) -> None:
    """Return all dead jobs a new budget of attempts, and list them."""
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
    """Cancel a job: what has not begun never will."""
    with client(context) as platform:
        job = platform.cancel(job_id)
    print_json(job) if as_json else render.job(out(), job)


@jobs_app.command("replay")
def replay_job(context: typer.Context, job_id: str, as_json: AsJson = False) -> None:
    """Return a dead job a new budget of attempts."""
    with client(context) as platform:
        job = platform.replay(job_id)
    print_json(job) if as_json else render.job(out(), job)
