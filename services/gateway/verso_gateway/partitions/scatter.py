"""Ask the partitions of a collection at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request

from verso_core.errors import PartitionedUnsupported, PartitionMissing, RequestInvalid
from verso_core.jobs import Collection, Item, Rejected, Result
from verso_core.jobs.collections import STREAMS, partition_name, partition_of
from verso_core.jobs.logs.lines import line_place
from verso_gateway import headers, responses, views
from verso_gateway.job_service import Ended
from verso_ledger import NewJob
from verso_ledger.ledgers.answers import every_answer
from verso_ledger.ledgers.groups import joined

_CURSOR = re.compile(r"([0-9]{1,9})\.(.*)", re.DOTALL)
ByName = Callable[[str], NewJob]
"""Returns the job of a partition, by its name."""


def holder(collection: Collection, document: str) -> str:
    """Return the name of the partition that has a document; of the collection if it has none.

    Of partitions by time the number of a line's stream tells it.

    Raises:
        PartitionMissing: its ledger no longer has that one.
    """
    state = collection.parted
    if state is None:
        return collection.name
    if state.rollover is None:
        return partition_name(collection.name, partition_of(document, collection.partitions))
    place = line_place(document)
    number = state.writing if place is None else place[0] // STREAMS
    if place is not None:
        check_there(collection, number)
    known = number if number in state.numbers else state.numbers[-1]
    return partition_name(collection.name, known)


def check_there(collection: Collection, number: int) -> None:
    """Check that a partition by time is not missing.

    Raises:
        PartitionMissing: its ledger no longer has it.
    """
    if collection.parted is not None and number in collection.parted.missing:
        name = partition_name(collection.name, number)
        raise PartitionMissing(f"the ledger of the partition {name!a} no longer has it")


def place_in(cursor: str) -> tuple[int, str | None]:
    """Return the partition that a cursor names, and where its own list goes on.

    Raises:
        RequestInvalid: it is no cursor of a list of one partition after the other.
    """
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise RequestInvalid("expected a cursor of this list")
    return int(found[1]), found[2] or None


def names_of(collection: Collection) -> list[str]:
    """Return the names of a collection's partitions."""
    assert collection.parted is not None
    return [partition_name(collection.name, number) for number in collection.parted.numbers]


def check_no_webhook(request: Request) -> None:
    """Check that no webhook is to be told of the end of several jobs.

    Raises:
        PartitionedUnsupported: one is.
    """
    if headers.scheduling_of(request).webhook is not None:
        raise PartitionedUnsupported(
            "expected no Verso-Webhook where several partitions work: wait for the job"
        )


def keyed(part: NewJob, whole: NewJob) -> NewJob:
    """Return a partition's job with an idempotency key that follows from its request's.

    Several partitions may be on one ledger, and no key of a caller has a line feed.
    """
    if whole.idempotency is None:
        return part
    key, digest = whole.idempotency
    return replace(part, idempotency=(f"{key}\n{part.collection}", digest))


async def each(request: Request, names: Sequence[str], job: ByName) -> list[Ended]:
    """Return the results of a job in each of some partitions, in their order.

    Raises:
        NotReady: the result of one did not come in time.
        VersoError: a job was not accepted or ended in an error.
    """
    check_no_webhook(request)
    return await every_answer(responses.finish(request, job(name)) for name in names)


async def every(request: Request, collection: Collection, job: ByName) -> list[Ended]:
    """Return the results of a job in each partition of a collection; see :func:`each`."""
    return await each(request, names_of(collection), job)


async def by_document(
    request: Request,
    collection: Collection,
    items: Sequence[Item | Rejected],
    job: Callable[[str, list[Item | Rejected]], NewJob],
) -> Ended:
    """Return the results of items that name documents, in their order.

    Args:
        request: the request.
        collection: where the documents are.
        items: each has the ``id`` of its document.
        job: returns the job of a partition, by its name, with its items.
    """
    places: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        document = getattr(item, "id", None) or ""
        places.setdefault(holder(collection, document), []).append(number)
    chosen: Mapping[str, list[Item | Rejected]] = {
        name: [items[number] for number in numbers] for name, numbers in places.items()
    }
    ended = await each(request, list(places), lambda name: job(name, chosen[name]))
    ordered: dict[int, Any] = {}
    for numbers, one in zip(places.values(), ended, strict=True):
        found = [item for result in one.results for item in result.items]
        ordered |= dict(zip(numbers, found, strict=True))
    results = [result for one in ended for result in one.results]
    whole = Result([ordered[number] for number in range(len(items))], views.total_timings(results))
    return Ended(joined([one.record for one in ended]), [whole])


def timings(ended: Sequence[Ended]) -> dict[str, float]:
    """Return the timings of several jobs together, ms by phase."""
    return views.total_timings(result for one in ended for result in one.results)
