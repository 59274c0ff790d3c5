"""One reader's tail: it goes through the slices that the ledger lists, as fast as its reader reads.

A tail holds no queue. It keeps its place among the accepted lines, asks the ledger for the next
slice when its reader has taken what was sent, and waits where there is none. So a reader that is
slow costs no memory, and one that comes back goes on where it was, from any gateway. What the
ledger has dropped meanwhile is a gap, which is counted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from fastapi.sse import format_sse_event

from verso_core.errors import QueueFull, Unavailable
from verso_core.jobs.logs.tail import GapReason, TailGap, TailPlace
from verso_gateway.bodies import reading
from verso_gateway.events import cancel_soon
from verso_gateway.metrics import Metrics
from verso_gateway.tail.lines import OpenedSlice, Part, Wanted, part_of
from verso_ledger import Ledgers
from verso_ledger.events.arrivals import Arrival, Arrivals
from verso_ledger.events.job_events import JobWaiter

PART_BYTES = 256 * 1024
"""Bytes of events that are sent at once, about."""
_CACHE_BYTES = 16 << 20
_AGAIN_S = 5.0
_POSITION_S = 15.0
"""Longest time without an event: readers and proxies see that the connection lives."""


class SliceCache:
    """Slices that tails of a gateway read lately, each read once for all of them."""

    def __init__(self, ledgers: Ledgers, *, most_bytes: int = _CACHE_BYTES) -> None:
        self._ledgers = ledgers
        self._most_bytes = most_bytes
        self._size = 0
        self._opened: OrderedDict[str, OpenedSlice] = OrderedDict()
        self._coming: dict[str, asyncio.Future[OpenedSlice | None]] = {}

    async def get(self, slice_id: str) -> OpenedSlice | None:
        """Return a slice; None once the ledger has dropped it.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        if slice_id in self._opened:
            self._opened.move_to_end(slice_id)
            return self._opened[slice_id]
        if slice_id not in self._coming:
            coming = asyncio.ensure_future(self._read(slice_id))
            self._coming[slice_id] = coming
            coming.add_done_callback(lambda _: self._coming.pop(slice_id, None))
        return await asyncio.shield(self._coming[slice_id])

    async def _read(self, slice_id: str) -> OpenedSlice | None:
        job_id = slice_id.rpartition(".")[0]
        payload = await self._ledgers.having(job_id).arrivals.payload(slice_id)
        if payload is None:
            return None
        opened = await reading.off_loop(len(payload), partial(OpenedSlice.read, payload))
        self._opened[slice_id] = opened
        self._size += len(opened.text)
        while self._size > self._most_bytes and len(self._opened) > 1:
            _, oldest = self._opened.popitem(last=False)
            self._size -= len(oldest.text)
        return opened


class Tails:
    """The tails of a gateway, up to a limit.

    Args:
        ledgers: list accepted slices.
        metrics: counts tails and their lines.
        limit: tails open at once.
    """

    def __init__(self, ledgers: Ledgers, *, metrics: Metrics, limit: int) -> None:
        self.cache = SliceCache(ledgers)
        self.metrics = metrics
        self._limit = limit
        self._open = 0

    def tail(
        self, arrivals: Arrivals, place: TailPlace, wanted: Wanted, *, unknown: bool = False
    ) -> Tail:
        """Return the tail of one more reader.

        Args:
            arrivals: of the collection's ledger.
            place: the first line that is looked at.
            wanted: which lines become events.
            unknown: whether the place to go on from was not known.

        Raises:
            QueueFull: as many are open as may be.
        """
        if self._open >= self._limit:
            detail = f"expected <= {self._limit} open tails, VERSO_TAIL_LIMIT"
            raise QueueFull(detail, retry_after_s=_AGAIN_S)
        return Tail(self, arrivals, place, wanted, unknown=unknown)

    @contextmanager
    def count(self) -> Iterator[None]:
        """Count a tail while it is open."""
        self._open += 1
        try:
            with self.metrics.tails.track_inprogress():
                yield
        finally:
            self._open -= 1


class Tail:
    """The events of one reader; see :meth:`Tails.tail`."""

    def __init__(
        self, tails: Tails, arrivals: Arrivals, place: TailPlace, wanted: Wanted, *, unknown: bool
    ) -> None:
        self._tails = tails
        self._arrivals = arrivals
        self._cache = tails.cache
        self._metrics = tails.metrics
        self._uid = place.uid
        self._next = place.number
        self._wanted = wanted
        self._unknown = unknown
        self._lost = 0

    @property
    def next_number(self) -> int:
        """The number of the next line that is looked at."""
        return self._next

    async def events(
        self, *, until: Sequence[Coroutine[Any, Any, object]]
    ) -> AsyncGenerator[bytes]:
        """Yield events until the first of ``until`` returns or the ledger does not answer."""
        stops: set[asyncio.Task[object]] = {asyncio.create_task(one) for one in until}
        clock = asyncio.get_running_loop().time
        try:
            with (
                self._tails.count(),
                self._arrivals.waiter(self._uid) as waiter,
                suppress(Unavailable),
            ):
                yield self._unknown_gap() if self._unknown else self._position()
                told_s = clock()
                while True:
                    waiter.clear()
                    page = await self._arrivals.page(self._uid, self._next)
                    for arrival in page:
                        async for data in self._slice(arrival):
                            yield data
                            told_s = clock()
                            if any(stop.done() for stop in stops):
                                return
                    if self._lost:
                        yield self._gap()
                        told_s = clock()
                    if clock() - told_s >= _POSITION_S:
                        yield self._position()
                        told_s = clock()
                    if not page and await self._paused(waiter, stops, told_s + _POSITION_S):
                        return
        finally:
            cancel_soon(*stops)

    async def _slice(self, arrival: Arrival) -> AsyncGenerator[bytes]:
        """Yield the events of a slice; what it lacks is noted for the next gap."""
        self._skip_to(arrival.first)
        start = TailPlace(self._uid, arrival.first)
        index, offset = self._next - arrival.first, -1
        while self._next < arrival.end:
            # not held while the reader reads: the cache alone bounds what all tails hold
            part = await self._part(arrival, start, index, offset)
            if part is None:
                self._skip_to(arrival.end)
                return
            index, offset = part.line, part.offset
            if part.data:
                if self._lost:
                    yield self._gap()
                yield part.data
                self._metrics.tailed(sent=part.sent)
            self._next = max(arrival.first + index, self._next)

    async def _part(
        self, arrival: Arrival, start: TailPlace, index: int, offset: int
    ) -> Part | None:
        opened = await self._cache.get(arrival.slice_id)
        if opened is None:
            return None
        if not self._wanted.may_hold(opened):
            return Part(b"", opened.lines, len(opened.text), 0)

        def work() -> Part:
            at = opened.offset(index) if offset < 0 else offset
            return part_of(opened, self._wanted, start, index, at, most=PART_BYTES)

        return await reading.off_loop(len(opened.text), work)

    def _skip_to(self, number: int) -> None:
        self._lost += max(0, number - self._next)
        self._next = max(self._next, number)

    def _gap(self) -> bytes:
        lost, self._lost = self._lost, 0
        self._metrics.tailed(lost=lost)
        return self._event("gap", TailGap(lines=lost, reason=GapReason.DROPPED))

    def _unknown_gap(self) -> bytes:
        return self._event("gap", TailGap(lines=None, reason=GapReason.UNKNOWN))

    def _position(self) -> bytes:
        return self._event("position", None)

    def _event(self, name: str, gap: TailGap | None) -> bytes:
        return format_sse_event(
            event=name,
            data_str="{}" if gap is None else gap.model_dump_json(),
            id=str(TailPlace(self._uid, self._next - 1)),
        )

    async def _paused(
        self, waiter: JobWaiter, stops: set[asyncio.Task[object]], until_s: float
    ) -> bool:
        """Wait for lines, the time of the next event, or a stop; return whether it is a stop."""
        left_s = max(0.0, until_s - asyncio.get_running_loop().time())
        coming: asyncio.Task[object] = asyncio.create_task(_set(waiter))
        try:
            done, _ = await asyncio.wait(
                {coming, *stops},
                timeout=min(left_s, self._arrivals.poll_s),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            coming.cancel()
        return bool(stops & done)


async def _set(waiter: JobWaiter) -> None:
    await waiter.wait()
