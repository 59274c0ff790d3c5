"""Reserve numbers for lines of many streams in a few exchanges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from verso_core.errors import VersoError
from verso_core.segments import Reserved
from verso_ledger.collections.logs import reserve_args, reserved
from verso_ledger.models import CollectionReplaced
from verso_ledger.scripts import AsyncScripts

_RESERVED_AT_ONCE = 256
"""Streams of one exchange: some milliseconds of the ledger's time."""
Asked = tuple[str, Mapping[str, str], int, str]
"""Collection, labels and lines of a stream, and when the collection was made; empty for any."""
Places = list[Reserved | VersoError]


async def reserve_each(
    scripts: AsyncScripts,
    asked: Sequence[Asked],
    made: Callable[[], Awaitable[Mapping[str, str]]],
) -> Places:
    """Reserve numbers for lines of streams; return the places, or why there is none.

    Args:
        scripts: of the ledger.
        asked: the streams.
        made: returns when each collection was made, where a flipped bit is corrected; the script
            compares what is stored as it is.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    places: Places = []
    for start in range(0, len(asked), _RESERVED_AT_ONCE):
        some = asked[start : start + _RESERVED_AT_ONCE]
        calls = [reserve_args(name, labels, lines, made=seen) for name, labels, lines, seen in some]
        places += map(_place, await scripts.run_each("reserve", calls))
    replaced = [n for n, place in enumerate(places) if isinstance(place, CollectionReplaced)]
    if not replaced:
        return places
    found = await made()
    again = [n for n in replaced if found.get(asked[n][0]) == asked[n][3]]
    if again:
        others = await reserve_each(scripts, [(*asked[n][:3], "") for n in again], made)
        for n, place in zip(again, others, strict=True):
            places[n] = place
    return places


def _place(reply: Any) -> Reserved | VersoError:
    try:
        return reserved(reply)
    except VersoError as error:
        return error
