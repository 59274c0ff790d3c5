"""Collections: create, list, describe, delete, migrate and scrub them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from verso_client.exchange import Call, Steps, path_of
from verso_client.operations.jobs import answered, answered_one, checked, new_key, post
from verso_core.jobs import CollectionRequest, MigrateRequest
from verso_core.jobs.collections import CollectionInfo
from verso_core.jobs.fitting import Fitted
from verso_core.jobs.migrate import MigrationState
from verso_core.jobs.moves import MoveRequest, MoveView
from verso_core.jobs.scrub import ScrubState
from verso_core.jobs.statistics import Statistics


def collections() -> Steps[list[CollectionInfo]]:
    """List the collections by name."""
    reply = yield Call("GET", path_of("collections"))
    return [CollectionInfo.model_validate(row) for row in reply.json()["collections"]]


def create_collection(request: CollectionRequest) -> Steps[CollectionInfo]:
    """Create a collection, or return the one that exists with the same settings.

    Raises:
        CollectionExists: the collection exists with other settings.
    """
    # Also what is equal to a default: one that exists is compared with the settings that are named.
    body = request.model_dump(mode="json", exclude_unset=True)
    row = yield from answered_one(post(path_of("collections"), body))
    return CollectionInfo.model_validate(row)


def change_collection(name: str, change: Mapping[str, Any]) -> Steps[CollectionInfo]:
    """Add indexes to a collection, or change other settings of it."""
    call = replace(post(path_of("collections", name), change), method="PATCH")
    return CollectionInfo.model_validate((yield from answered_one(call)))


def fit(name: str) -> Steps[Fitted]:
    """Fit a collection's codec to its newest texts, and wait for the end."""
    row = yield from answered_one(post(path_of("collections", name, "fit"), {}))
    return Fitted.model_validate(row)


def delete_collection(name: str) -> Steps[None]:
    """Delete a collection and all its documents.

    Raises:
        CollectionUnknown: there is none of this name.
    """
    key = {"Idempotency-Key": new_key()}
    row = yield from answered(Call("DELETE", path_of("collections", name), headers=key))
    for item in row.get("results", ()):  # none where it was deleted partition by partition
        checked(item)


def stats(name: str) -> Steps[Statistics]:
    """Return counts and sizes of what a collection holds."""
    row = yield from answered_one(Call("GET", path_of("collections", name)))
    return Statistics.model_validate({"name": name, **row})


def migrate(name: str, request: MigrateRequest) -> Steps[MigrationState]:
    """Start or resume a collection's migration."""
    yield from answered_one(post(path_of("collections", name, "migrate"), request))
    return (yield from migration(name))


def migration(name: str) -> Steps[MigrationState]:
    """Return the state of a collection's migration."""
    reply = yield Call("GET", path_of("collections", name, "migrate"))
    return MigrationState.model_validate(reply.json())


def end_migration(name: str) -> Steps[None]:
    """Remove the old side of a finished migration, or cancel an unfinished one."""
    key = {"Idempotency-Key": new_key()}
    call = Call("DELETE", path_of("collections", name, "migrate"), headers=key)
    yield from answered_one(call)


def move(name: str, ledger: str) -> Steps[MoveView]:
    """Start a collection's move to another ledger."""
    reply = yield post(path_of("collections", name, "move"), MoveRequest(ledger=ledger))
    return MoveView.model_validate(reply.json())


def move_state(name: str) -> Steps[MoveView]:
    """Return the state of a collection's newest move."""
    reply = yield Call("GET", path_of("collections", name, "move"))
    return MoveView.model_validate(reply.json())


def end_move(name: str) -> Steps[MoveView]:
    """Cancel a collection's move."""
    key = {"Idempotency-Key": new_key()}
    reply = yield Call("DELETE", path_of("collections", name, "move"), headers=key)
    return MoveView.model_validate(reply.json())


def scrub(*, now: bool) -> Steps[ScrubState]:
    """Return the state of the scrub; with ``now`` request a pass first."""
    reply = yield Call("POST" if now else "GET", path_of("scrub"))
    return ScrubState.model_validate(reply.json())
