"""The threads that run batches: one lane with a pool of waiting texts for each kind of work.

A text that comes alone to an idle lane is run by the thread that brings it: waking another thread
and being woken by it would cost a lone caller more than everything else here.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from verso_core.interpreter import yield_cores
from verso_worker.engine.batching import Closed, Item, Pool, Request

Work = TypeVar("Work")
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Lane(Generic[Work, Result]):
    """Runs token-budget batches of one kind of work, one after another in each of its threads.

    Args:
        name: its name in logs and threads.
        run: returns the results of a batch, in its order; called from the lane's threads.
        budget: most tokens of a batch, padding included.
        rows: most texts of a batch.
        padding: most tokens of a batch that are padding; None for no bound.
        threads: with two, the Python part of one batch overlaps the graph of another.
        yields: its threads let those of other lanes go first.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[Work]], Sequence[Result]],
        *,
        budget: int,
        rows: int,
        padding: int | None = None,
        threads: int = 1,
        yields: bool = False,
    ) -> None:
        self._name = name
        self._yields = yields
        self._run = run
        self._budget = budget
        self._rows = rows
        self._padding = padding
        self._pool: Pool[Work] = Pool()
        self._tally = Tally()
        self._turns = threading.Semaphore(threads)  # held by the thread that runs a batch
        self._threads = [
            threading.Thread(target=self._work, name=f"lane-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, works: Sequence[Work], costs: Sequence[int]) -> list[Result | Exception]:
        """Run all work and return the results in order, an exception for failed work.

        Raises:
            Cancelled: the caller of the running handler hung up.
        """
        at_once = len(works) == 1 and not self._yields
        if at_once and not self._pool.waiting and self._turns.acquire(blocking=False):
            request = Request(1)
            try:
                self._finish([Item(costs[0], 0, works[0], request, 0)])
            finally:
                self._turns.release()
            return request.wait() or []
        return self._pool.run(works, costs)

    def figures(self) -> dict[str, float]:
        """Return the counts so far, and how many texts wait."""
        return {**self._tally.figures(), "waiting": self._pool.waiting}

    def close(self) -> None:
        """Finish the waiting texts and end the threads."""
        self._pool.close()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        if self._yields:
            yield_cores()
        while True:
            try:
                self._pool.wait()
            except Closed:
                return
            with self._turns:
                items = self._pool.take_batch(
                    budget=self._budget, rows=self._rows, padding=self._padding
                )
                if items:  # else another thread was first
                    self._finish(items)

    def _finish(self, items: list[Item[Work]]) -> None:
        """Run a batch; if it fails as a whole, halve it until the texts at fault are alone."""
        try:
            with self._tally.batch(texts=len(items), tokens=sum(item.cost for item in items)):
                results = self._run([item.work for item in items])
        except Exception as exc:  # noqa: BLE001  (whatever it is, the neighbours must not fail)
            if len(items) == 1:
                log_failure(self._name, exc)
                self._tally.failed()
                items[0].finish(exc)
                return
            middle = len(items) // 2
            self._finish(items[:middle])
            self._finish(items[middle:])
            return
        for item, result in zip(items, results, strict=True):
            item.finish(result)


def log_failure(lane: str, exc: Exception, **extra: Any) -> None:
    """Log where a batch failed, without the foreign message, which may quote a text."""
    stack = "".join(traceback.format_tb(exc.__traceback__))
    _log.error("lane %s: %s\n%s", lane, type(exc).__name__, stack, extra=extra)


class Tally:
    """Counts the batches of a lane, their texts and their time; any number of threads may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches = 0
        self._texts = 0
        self._failed = 0
        self._tokens = 0
        self._busy_s = 0.0

    @contextmanager
    def batch(self, *, texts: int = 0, tokens: int = 0) -> Iterator[None]:
        """Count a batch of so many texts and tokens, and the time of the block.

        Args:
            texts: texts that start with it; none for a step of the decoder, which continues its
                own.
            tokens: tokens given to the graph, without padding.
        """
        start = time.perf_counter()
        try:
            yield
        finally:
            spent_s = time.perf_counter() - start
            with self._lock:
                self._batches += 1
                self._texts += texts
                self._tokens += tokens
                self._busy_s += spent_s

    def failed(self, texts: int = 1) -> None:
        """Count texts that ended in an error."""
        with self._lock:
            self._failed += texts

    def figures(self) -> dict[str, float]:
        """Return the counts by name; ``busy_s`` in seconds."""
        with self._lock:
            return {
                "batches": self._batches,
                "texts": self._texts,
                "failed": self._failed,
                "tokens": self._tokens,
                "busy_s": self._busy_s,
            }
