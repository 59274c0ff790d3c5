"""Which partitions by time are asked, and what is in common to all that is asked of them."""

from __future__ import annotations

from fastapi import Request

from verso_core.errors import PartitionMissing
from verso_core.jobs import Collection, Kind, NoItem
from verso_core.jobs.collections import STATEMENTS, TimePart, partition_name
from verso_core.jobs.lines import Waiting
from verso_core.jobs.log_views import Statements, StatementsParams
from verso_gateway import headers, responses
from verso_gateway.context import context_of
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
        one.number for one in state.parts if one.number in among and _meets(one, start_ns, end_ns)
    ]
    return sorted(found) or [max(state.numbers)]


def _meets(part: TimePart, start_ns: int | None, end_ns: int | None) -> bool:
    """Whether a partition may have lines in [start, end): the times of its lines may be unknown."""
    if part.first is None or part.last is None:
        return True
    # times of lines are exact to the nanosecond, those that are noted to a microsecond
    late = end_ns is not None and part.first > end_ns / 1e9 + 1e-3
    early = start_ns is not None and part.last < start_ns / 1e9 - 1e-3
    return not (late or early)


def left_out(
    request: Request,
    collection: Collection,
    start_ns: int | None = None,
    end_ns: int | None = None,
    *,
    handling: str = headers.LENIENT,
) -> dict[str, tuple[str, ...]]:
    """Return the field of an answer that names the partitions it leaves out; empty for none.

    Args:
        request: may prefer another handling.
        collection: what is asked.
        start_ns: the first time that is asked for, Unix nanoseconds.
        end_ns: the time behind the last one.
        handling: strict refuses the request, lenient answers without them.

    Raises:
        PartitionMissing: partitions are missing that may have lines in [start, end), and the
            handling is strict.
    """
    state = collection.parted
    if state is None or not state.missing:
        return {}
    names = [
        partition_name(collection.name, one.number)
        for one in state.parts
        if one.number in state.missing and _meets(one, start_ns, end_ns)
    ]
    if not names:
        return {}
    if (headers.preference_of(request).handling or handling) == headers.STRICT:
        raise PartitionMissing(f"the ledgers of these partitions no longer have them: {names}")
    return {"missing_partitions": tuple(names)}


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
