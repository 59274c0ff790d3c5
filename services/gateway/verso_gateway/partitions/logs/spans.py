"""Which partitions by time are asked, and what is in common to all that is asked of them."""

from __future__ import annotations

from fastapi import Request

from verso_core.jobs import Collection, Kind, NoItem
from verso_core.jobs.collections import STATEMENTS, partition_name
from verso_core.jobs.logs.lines import Waiting
from verso_core.jobs.logs.views import Statements, StatementsParams
from verso_gateway import responses
from verso_gateway.context import context_of
from verso_gateway.partitions.missing import meets
from verso_gateway.partitions.scatter import check_there
from verso_ledger.ledgers.answers import every_answer


def numbers_in(
    collection: Collection,
    start_ns: int | None = None,
    end_ns: int | None = None,
    *,
    missing: bool = False,
) -> list[int]:
    """Return the partitions that may have lines in [start, end), by number; at least one.

    ``missing``: with those that their ledgers no longer have.
    """
    state = collection.parted
    assert state is not None
    among = state.numbers + (state.missing if missing else ())
    found = [
        one.number for one in state.parts if one.number in among and meets(one, start_ns, end_ns)
    ]
    return sorted(found) or [max(state.numbers)]


async def waiting_of(request: Request, collection: Collection) -> Waiting:
    """Return how many lines were accepted and are not stored yet, of all partitions."""
    ledgers = context_of(request).ledgers
    names = [collection.name]
    if collection.parted is not None:
        names = [partition_name(collection.name, number) for number in collection.parted.numbers]

    async def of_one(name: str) -> Waiting:
        return await (await ledgers.of_collection(name)).waiting.of(name)

    found = await every_answer(of_one(name) for name in names)
    ages = [one.oldest_s for one in found if one.oldest_s is not None]
    return Waiting(lines=sum(one.lines for one in found), oldest_s=max(ages, default=None))


async def template_of(request: Request, collection: Collection, statement: str) -> str | None:
    """Return the template of a statement by its id; None if there is none.

    The id says the partition that it is of, and its id there.

    Raises:
        PartitionMissing: the ledger of that partition no longer has it.
    """
    number, own = divmod(int(statement), STATEMENTS)
    check_there(collection, number)
    if collection.parted is None or number not in collection.parted.numbers:
        return None
    params = StatementsParams(
        collection=partition_name(collection.name, number), statement=str(own), limit=1
    )
    job = responses.job_of_one(request, Kind.STATEMENTS, params, NoItem())
    found: Statements = responses.sole(await responses.finish(request, job))
    return next((one.statement for one in found.statements), None)


def statement_id(number: int, own: str) -> str:
    """Return the id of a statement of a partition, by its id there."""
    return str(number * STATEMENTS + int(own))
