"""``/v1/collections/{name}/move``: move a collection to another ledger while it is served."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import MigrationRefused, NotFound
from verso_core.jobs.moves import Move, MoveRequest, MoveStage, MoveView
from verso_gateway import openapi, responses, views
from verso_gateway.access import collection_of, guarded, made_of, read_of
from verso_gateway.bodies import reading
from verso_gateway.context import Context, context_of

router = guarded("collections")


@router.post(
    "/v1/collections/{name}/move",
    name="move",
    operation_id="moveCollection",
    responses=openapi.responses(MoveView),
    openapi_extra=openapi.body(MoveRequest),
)
async def begin(request: Request, name: str) -> Response:
    """Move a collection to another ledger; the answer does not wait for it.

    It is served all the while. Near the end writes wait some seconds. One that is being moved there
    already is returned as it is.
    """
    context = context_of(request)
    await collection_of(request, name, partition=True)
    checked = await reading.read(request, MoveRequest)
    if checked.ledger not in {one.name for one in context.ledgers.all}:
        raise NotFound(f"no ledger {checked.ledger!a}")
    request.state.target = name  # for the audit log

    async def act() -> None:
        await start(context, name, checked.ledger, made=made_of(request, name))

    await responses.once(request, act)
    return responses.json_response(views.move(await _newest(request, name)))


@router.get(
    "/v1/collections/{name}/move",
    name="move_state",
    operation_id="getMove",
    responses=openapi.responses(MoveView),
)
async def describe(request: Request, name: str) -> Response:
    """Describe the newest move of a collection to another ledger."""
    await collection_of(request, name, partition=True)
    return responses.json_response(views.move(await _newest(request, name)))


@router.delete(
    "/v1/collections/{name}/move",
    name="move_end",
    operation_id="endMove",
    responses=openapi.responses(MoveView),
)
async def end(request: Request, name: str) -> Response:
    """Cancel a move that has not switched ledgers yet; its copy is removed."""
    await collection_of(request, name, partition=True)
    request.state.target = name  # for the audit log

    async def act() -> None:
        move = await _newest(request, name)
        if move.stage not in (MoveStage.COPY, MoveStage.FENCE):
            raise MigrationRefused(f"{name!r} has moved, or its move was cancelled")
        ledgers = context_of(request).ledgers
        ledger = next(one for one in ledgers.all if one.name == move.source)
        if not await ledger.moves.cancel(move):
            raise MigrationRefused(f"the move of {name!r} has just gone on; ask again")

    await responses.once(request, act)
    return responses.json_response(views.move(await _newest(request, name)))


async def start(context: Context, name: str, target: str, *, made: str = "") -> Move:
    """Start a move, or return the one that is under way.

    ``made``: when the collection that the caller has seen was made; empty for any.

    Raises:
        CollectionReplaced: there is one that was made at another time.
        CollectionUnknown: there is no such collection.
        MigrationRefused: it cannot move there now.
        LedgerUnavailable: its ledger does not answer.
    """
    ledgers = context.ledgers
    if ledgers.stays_home(name):
        raise MigrationRefused(f"{name!r} is always on the home ledger")
    ledger = await ledgers.of_collection(name)
    if ledger.name == target:
        raise MigrationRefused(f"{name!r} is on the ledger {target} already")
    for other, moves in (await ledgers.each(lambda one: one.moves.all())).items():
        if other != ledger.name and any(one.collection == name and one.running for one in moves):
            raise MigrationRefused(f"{name!r} still leaves the ledger {other}; ask again")
    return await ledger.moves.begin(name, target, made=made)


async def _newest(request: Request, name: str) -> Move:
    ledgers = context_of(request).ledgers
    found = await read_of(request, name, lambda _: ledgers.each(lambda one: one.moves.all()))
    moves = [one for own in found.values() for one in own if one.collection == name]
    if not moves:
        raise NotFound(f"{name!r} has never been moved")
    return max(moves, key=lambda one: one.started)
