"""Which of the waiting texts run together.

Texts of all clients wait in one :class:`Pool`. A batch is chosen when the model is free, never by a
timer, so an idle engine starts at once and a busy one finds more texts to batch:

1. The request that has been served least so far (the older one of two) contributes its longest
   waiting text. So a single query passes a bulk request after at most one batch, and a bulk request
   progresses while queries come.
2. The batch is filled with the texts next in length below, of any request, as long as rows times
   the longest length stay within the token budget and the padding costs less than the fixed cost of
   a run. The remaining texts go into another batch.

A request is complete when its last text is; its results are in the order of its texts.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from verso_core.errors import Cancelled
from verso_worker.ipc.server import check_caller

ENCODE_BUDGET = 512
"""Tokens of an encoder batch, padding included: on a CPU more gains nothing and holds up others."""

BATCH_ROWS = 64
"""Most texts of one batch, and most records decoded side by side."""

_CHECK_S = 0.25  # a caller that has hung up is noticed so often
Work = TypeVar("Work")


class Request:
    """The texts of one call on their way through a lane.

    A result may be an exception: then that text failed, and the others did not.
    """

    def __init__(self, size: int) -> None:
        self.served = 0
        self._results: list[Any] = [None] * size
        self._missing = size
        self._lock = threading.Lock()
        self._complete = threading.Event()
        if size == 0:
            self._complete.set()

    def finish(self, index: int, result: Any) -> None:
        """Store the result of one text; called once for each."""
        self._results[index] = result
        with self._lock:
            self._missing -= 1
            complete = self._missing == 0
        if complete:
            self._complete.set()

    def wait(self, timeout_s: float | None = None) -> list[Any] | None:
        """Wait for all texts and return their results in order; None if the time was too short."""
        return self._results if self._complete.wait(timeout_s) else None


@dataclass(frozen=True, slots=True, eq=False)
class Item(Generic[Work]):
    """One text waiting in a pool. `cost` is its length in tokens (or a substitute for it)."""

    cost: int
    serial: int
    work: Work
    request: Request
    index: int

    @property
    def key(self) -> tuple[int, int]:
        """Order by cost, and by arrival among equals (the older is taken first, from the end)."""
        return (self.cost, -self.serial)

    def finish(self, result: Any) -> None:
        """Store the result in the request."""
        self.request.finish(self.index, result)


class Closed(Exception):
    """Raised to a lane's thread when its pool is closed and empty."""


class Pool(Generic[Work]):
    """The texts that wait, from all clients; any number of threads may put and take."""

    def __init__(self) -> None:
        self._serials = itertools.count()
        self._items: list[Item[Work]] = []  # ascending by key
        self._by_request: dict[Request, list[Item[Work]]] = {}  # in order of arrival
        self._changed = threading.Condition()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many texts wait now."""
        return len(self._items)

    def put(self, works: Sequence[Work], costs: Sequence[int]) -> Request:
        """Add a request's texts; the caller waits for the results on the returned request."""
        request = Request(len(works))
        if not works:
            return request
        items = [
            Item(cost, next(self._serials), work, request, index)
            for index, (work, cost) in enumerate(zip(works, costs, strict=True))
        ]
        items.sort(key=lambda item: item.key)
        with self._changed:
            self._by_request[request] = items
            self._items = sorted(self._items + items, key=lambda item: item.key)
            self._changed.notify()
        return request

    def run(self, works: Sequence[Work], costs: Sequence[int]) -> list[Any]:
        """Add a request's texts and return their results in order.

        Raises:
            Cancelled: the caller of the running handler hung up; what still waited was withdrawn.
        """
        request = self.put(works, costs)
        while (results := request.wait(_CHECK_S)) is None:
            try:
                check_caller()
            except Cancelled:
                self._withdraw(request)
                raise
        return results

    def _withdraw(self, request: Request) -> None:
        with self._changed:
            if self._by_request.pop(request, None) is not None:
                self._items = [item for item in self._items if item.request is not request]

    def wait(self) -> None:
        """Wait for work.

        Raises:
            Closed: the pool was closed and nothing waits any more.
        """
        with self._changed:
            self._await_work()

    def take_batch(self, *, budget: int, rows: int, padding: int | None = None) -> list[Item[Work]]:
        """Take a batch of at most `rows`, rows x longest cost <= `budget`; empty if no text waits.

        A text longer than the budget is a batch alone. With `padding`, at most that many tokens of
        a batch are padding.
        """
        with self._changed:
            if not self._items:
                return []
            last = self._position(self._next())
            cost = max(1, self._items[last].cost)
            count = min(max(1, budget // cost), rows, last + 1)
            first = last
            spare = budget if padding is None else padding
            while last - first + 1 < count:
                spare -= cost - self._items[first - 1].cost
                if spare < 0:
                    break
                first -= 1
            return self._remove(first, last + 1)

    def take_rows(self, count: int, *, wait: bool) -> list[Item[Work]]:
        """Take up to `count` items, each from the request served least; empty when nothing waits.

        Raises:
            Closed: `wait` is set, the pool was closed and nothing waits any more.
        """
        taken: list[Item[Work]] = []
        with self._changed:
            if wait:
                self._await_work()
            while self._items and len(taken) < count:
                position = self._position(self._next())
                taken += self._remove(position, position + 1)
        return taken

    def close(self) -> None:
        """Let the takers finish the waiting texts and then end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _await_work(self) -> None:
        while not self._items:
            if self._closed:
                raise Closed
            self._changed.wait()

    def _next(self) -> Item[Work]:
        # min() keeps the first of equals, and the dict keeps the order of arrival.
        request = min(self._by_request, key=lambda request: request.served)
        return self._by_request[request][-1]

    def _position(self, item: Item[Work]) -> int:
        return bisect.bisect_left(self._items, item.key, key=lambda other: other.key)

    def _remove(self, start: int, end: int) -> list[Item[Work]]:
        taken = self._items[start:end]
        del self._items[start:end]
        for item in taken:
            waiting = self._by_request[item.request]
            waiting.remove(item)
            item.request.served += max(1, item.cost)
            if not waiting:
                del self._by_request[item.request]
        if self._items:
            self._changed.notify()  # one call of put wakes one taker, and has work for more
        return taken
