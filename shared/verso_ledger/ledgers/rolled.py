"""Which partition by time takes lines, and which took them before, as the home ledger notes it."""

from __future__ import annotations

from collections.abc import Mapping

from verso_core.jobs.collections import (
    Partitioned,
    collection_of_partition,
    number_of_partition,
    partition_name,
)

Notes = Mapping[str, Partitioned]


def state_of(notes: Notes, partition: str) -> Partitioned | None:
    """Return the state of the collection that a partition by time is of; None of another name."""
    state = notes.get(collection_of_partition(partition) or "")
    return state if state is not None and state.rollover is not None else None


def following(notes: Notes, partition: str) -> str | None:
    """Return the live partition behind one that takes no more lines; None if none is known."""
    state = state_of(notes, partition)
    number = None if state is None else state.following(number_of_partition(partition))
    name = collection_of_partition(partition)
    return None if number is None or name is None else partition_name(name, number)


def before(notes: Notes, partition: str, *, now: float, within_s: float) -> list[str]:
    """Return the partitions that took lines before one, as far as they rolled lately, newest first.

    What they accepted may be sent again, and would be accepted again where it is not known.

    Args:
        notes: of the home ledger.
        partition: that lines are written to.
        now: by the home ledger's clock, Unix seconds.
        within_s: how long what they know is remembered, seconds.
    """
    state, name = state_of(notes, partition), collection_of_partition(partition)
    if state is None or name is None:
        return []
    number, since = number_of_partition(partition), now - within_s
    older = [one for one in state.parts if one.number < number]
    lately = [one.number for one in older if one.rolled is None or one.rolled >= since]
    return [partition_name(name, one) for one in sorted(lately, reverse=True)]
