"""Collections: create, list, describe, delete, migrate and scrub them."""

from __future__ import annotations

from urllib.parse import quote

from verso_client.exchange import Call, Retries, Steps, perform
from verso_client.operations.jobs import answered, post, sole
from verso_core.jobs import CollectionRequest, Precision, SearchSetting, TextPolicy
from verso_core.jobs.admin import CollectionInfo, MigrationState, ScrubState, Statistics


def collections(retries: Retries) -> Steps[list[CollectionInfo]]:
    """List the collections by name."""
    reply = yield from perform(Call("GET", "/v1/collections"), retries)
    return [CollectionInfo.model_validate(row) for row in reply.json()["collections"]]


def create_collection(
    name: str,
    retries: Retries,
    *,
    precision: Precision,
    text_policy: TextPolicy,
    search: SearchSetting,
) -> Steps[CollectionInfo]:
    """Create a collection, or return the one that exists with the same settings.

    Raises:
        CollectionExists: the collection exists with other settings.
    """
    body = CollectionRequest(name=name, precision=precision, text_policy=text_policy, search=search)
    row = yield from answered(post("/v1/collections", body.model_dump(mode="json")), retries)
    if "results" in row:
        row = sole(row["results"])
    return CollectionInfo.model_validate(row)


def delete_collection(name: str, retries: Retries) -> Steps[None]:
    """Delete a collection and all its documents."""
    row = yield from answered(Call("DELETE", f"/v1/collections/{quote(name, safe='')}"), retries)
    if "results" in row:
        sole(row["results"])


def stats(name: str, retries: Retries) -> Steps[Statistics]:
    """Return counts and sizes of what a collection holds."""
    row = yield from answered(Call("GET", f"/v1/collections/{quote(name, safe='')}"), retries)
    if "results" in row:
        row = sole(row["results"])
    return Statistics.model_validate({"name": name, **row})


def migrate(name: str, retries: Retries, *, to: str) -> Steps[MigrationState]:
    """Start or resume a collection's migration."""
    path = f"/v1/collections/{quote(name, safe='')}/migrate"
    row = yield from answered(post(path, {"artifact": to}), retries)
    if "results" in row:
        sole(row["results"])
    return (yield from migration(name, retries))


def migration(name: str, retries: Retries) -> Steps[MigrationState]:
    """Return the state of a collection's migration."""
    path = f"/v1/collections/{quote(name, safe='')}/migrate"
    reply = yield from perform(Call("GET", path), retries)
    return MigrationState.model_validate(reply.json())


def end_migration(name: str, retries: Retries) -> Steps[None]:
    """Remove the old side of a finished migration, or abort an unfinished one."""
    path = f"/v1/collections/{quote(name, safe='')}/migrate"
    row = yield from answered(Call("DELETE", path), retries)
    if "results" in row:
        sole(row["results"])


def scrub(retries: Retries, *, now: bool) -> Steps[ScrubState]:
    """Return the state of the scrub; with ``now`` request a pass first."""
    reply = yield from perform(Call("POST" if now else "GET", "/v1/scrub"), retries)
    return ScrubState.model_validate(reply.json())
