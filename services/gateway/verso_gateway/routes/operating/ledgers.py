"""``/v1/ledgers``: the ledgers of the platform, and which of them get no new collection."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from verso_core.errors import CollectionBusy, MigrationRefused, NotFound, RequestInvalid
from verso_core.jobs.job import LedgerChange, LedgerList, LedgerView
from verso_core.jobs.moves import Move
from verso_gateway import openapi, responses
from verso_gateway.access import guarded
from verso_gateway.bodies import reading
from verso_gateway.context import Context, context_of
from verso_gateway.routes.operating.moves import start
from verso_ledger import AsyncLedger, Server

router = guarded("health")


@router.get(
    "/v1/ledgers",
    name="ledgers",
    operation_id="listLedgers",
    responses=openapi.responses(LedgerList),
)
async def listed(request: Request) -> Response:
    """List the ledgers, the home ledger first: what each holds, and whether it answers."""
    return responses.json_response(await _described(context_of(request)))


@router.patch(
    "/v1/ledgers/{name}",
    name="ledger_change",
    operation_id="changeLedger",
    responses=openapi.responses(LedgerList),
    openapi_extra=openapi.body(LedgerChange),
)
async def change(request: Request, name: str) -> Response:
    """Make no new collection on a ledger from now on, or make them there again.

    What it has stays there and is served, unless it is to move: then its collections move to the
    ledgers with the most free memory, one after another. Collections whose name was placed there
    before are made there again.
    """
    context = context_of(request)
    if name not in {one.name for one in context.ledgers.all}:
        raise NotFound(f"no ledger {name!a}")
    checked = await reading.read(request, LedgerChange)
    request.state.target = name  # for the audit log
    if checked.move and not checked.draining:
        raise RequestInvalid("expected draining with move")

    async def act() -> None:
        await context.ledgers.home.placements.drain(name, drained=checked.draining)
        if checked.move:
            await _move_all(context, name)

    await responses.once(request, act)
    return responses.json_response(await _described(context))


async def _move_all(context: Context, ledger: str) -> None:
    """Start the moves of a ledger's collections to the others, the largest first.

    Each goes to the ledger that will have the most free memory then. Those that are being moved
    stay as they are; one that cannot move keeps no other from it.

    Raises:
        LedgerUnavailable: no ledger can take them.
        MigrationRefused: some cannot move now; the others do.
    """
    ledgers = context.ledgers
    free = await ledgers.room(but=ledger)
    leaving = next(one for one in ledgers.all if one.name == ledger)
    moving = {one.collection for one in await leaving.moves.all() if one.running}
    sizes = await leaving.moves.sizes()
    refused = []
    for name in sorted(await ledgers.collections(), key=lambda one: (-sizes.get(one, 0), one)):
        if (await ledgers.of_collection(name)).name != ledger or name in moving:
            continue
        if ledgers.stays_home(name):
            continue
        target = max(free, key=free.__getitem__)
        try:
            await start(context, name, target)
        except (CollectionBusy, MigrationRefused) as error:
            refused.append(error.detail)
        else:
            free[target] -= sizes.get(name, 0)
    if refused:
        raise MigrationRefused("the others move; " + "; ".join(refused))


async def _described(context: Context) -> LedgerList:
    ledgers = context.ledgers
    servers = await ledgers.servers()
    held = await ledgers.counts()
    moves = await ledgers.each(lambda one: one.moves.all())
    draining = ledgers.draining if ledgers.several else await ledgers.home.placements.drained()
    return LedgerList(
        ledgers=tuple(
            _view(
                one,
                servers.get(one.name),
                held=held,
                draining=one.name in draining,
                moves=moves.get(one.name),
            )
            for one in ledgers.all
        )
    )


def _view(
    ledger: AsyncLedger,
    server: Server | None,
    *,
    held: dict[str, int],
    draining: bool,
    moves: list[Move] | None,
) -> LedgerView:
    return LedgerView(
        name=ledger.name,
        answers=server is not None,
        draining=draining,
        collections=held.get(ledger.name, 0),
        leaving=None if moves is None else sum(one.running for one in moves),
        bytes_memory=None if server is None else server.memory_bytes,
        bytes_memory_limit=None if server is None else server.memory_limit_bytes,
    )
