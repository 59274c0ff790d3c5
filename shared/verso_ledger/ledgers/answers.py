"""Wait for several calls at once, and leave none behind when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def every_answer(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Return the answers of calls that run at once, in their order, when all have ended.

    Raises:
        BaseException: the first call in order that failed, once all have ended.
    """
    answers = await asyncio.gather(*calls, return_exceptions=True)
    found = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found
