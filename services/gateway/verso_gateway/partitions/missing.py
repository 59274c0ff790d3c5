"""Partitions that their ledgers no longer have: what an answer says of those that it leaves out."""

from __future__ import annotations

from fastapi import Request

from verso_core.errors import PartitionMissing
from verso_core.jobs import Collection
from verso_core.jobs.collections import TimePart, partition_name
from verso_gateway import headers


def meets(part: TimePart, start_ns: int | None, end_ns: int | None) -> bool:
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
        if one.number in state.missing and meets(one, start_ns, end_ns)
    ]
    if not names:
        return {}
    if (headers.preference_of(request).handling or handling) == headers.STRICT:
        raise PartitionMissing(f"the ledgers of these partitions no longer have them: {names}")
    return {"missing_partitions": tuple(names)}
