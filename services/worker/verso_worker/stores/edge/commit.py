"""Group commit: many callers' writes, one flush, and a reply to each only after it.

A flush takes 10-70 ms whether one point waits for it or a thousand. So one thread takes all waiting
writes, and while it flushes the next group gathers:

1. Refuse writes that would take the disk below its floor; no part of them is applied.
2. Apply the writes in the order of arrival. One that fails does not affect the others.
3. Flush every changed collection, once.
4. Reply.

After a failed flush the state of the disk is unknown (Linux drops dirty pages that could not be
written, and a second fsync then reports success), so the process ends. The callers see the
connection break, and the next process reads what is really there.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from verso_core.errors import DiskFull, VectorsUnavailable, VersoError

GROUP_MAX = 256
"""Most writes that one flush answers."""

_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """A target of writes."""

    def flush(self) -> None:
        """Bring all applied writes to the disk."""


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    target: Flushable
    change: Callable[[], None]
    size_bytes: int
    done: Future[None] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, eq=False)
class _Alone:
    action: Callable[[], None]
    done: Future[None] = field(default_factory=Future)


class Committer:
    """One thread that applies writes in groups.

    Args:
        free_bytes: returns the free space of the disk, bytes.
        floor_bytes: free space that writes must leave.
        idle_s: call ``idle`` after so many seconds without a write.
        idle: called when no write waits.
        fatal: ends the process; called with the reason.
    """

    def __init__(
        self,
        *,
        free_bytes: Callable[[], int],
        floor_bytes: int,
        idle_s: float,
        idle: Callable[[], None],
        fatal: Callable[[str], NoReturn],
    ) -> None:
        self._free_bytes = free_bytes
        self._floor_bytes = floor_bytes
        self._idle_s = idle_s
        self._idle = idle
        self._fatal = fatal
        self._waiting: queue.SimpleQueue[_Write | _Alone | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="commit", daemon=True)

    def start(self) -> None:
        """Start to take writes."""
        self._thread.start()

    def close(self) -> None:
        """Finish the submitted writes and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def write(self, target: Flushable, change: Callable[[], None], *, size_bytes: int) -> None:
        """Apply a change and return when it is on the disk.

        Args:
            target: what the change is made to.
            change: makes it; raises to refuse it.
            size_bytes: space it may take; 0 for a change that frees space.

        Raises:
            DiskFull: free space would fall below the floor; nothing was applied.
            VersoError: the error that the change raised.
        """
        write = _Write(target, change, size_bytes)
        self._waiting.put(write)
        write.done.result()

    def alone(self, action: Callable[[], None]) -> None:
        """Run an action while no write is under way, and return when it is done."""
        alone = _Alone(action)
        self._waiting.put(alone)
        alone.done.result()

    def check_room(self, size_bytes: int) -> None:
        """Check that so many bytes may be written.

        Raises:
            DiskFull: free space would fall below the floor.
        """
        free = self._free_bytes()
        if free - size_bytes < self._floor_bytes:
            raise DiskFull(
                f"expected {size_bytes + self._floor_bytes} bytes free for a write of "
                f"{size_bytes} above the floor, got {free}"
            )

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as exc:  # noqa: BLE001 a panic of the engine is no Exception; without this thread no write would ever be answered
            self._fatal(f"commit thread ended with {type(exc).__name__}")

    def _step(self) -> bool:
        try:
            first = self._waiting.get(timeout=self._idle_s)
        except queue.Empty:
            self._idle()
            return True
        group: list[_Write] = []
        item: _Write | _Alone | None = first
        while isinstance(item, _Write):
            group.append(item)
            if len(group) >= GROUP_MAX or self._waiting.empty():
                self._commit(group)
                return True
            item = self._waiting.get_nowait()
        self._commit(group)
        if isinstance(item, _Alone):
            _resolve(item.done, _outcome(item.action))
        return item is not None

    def _commit(self, group: Sequence[_Write]) -> None:
        outcomes = [self._apply(write) for write in group]
        applied = [w for w, error in zip(group, outcomes, strict=True) if error is None]
        for target in {id(write.target): write.target for write in applied}.values():
            try:
                target.flush()
            except Exception as exc:  # noqa: BLE001 whatever it is, the state on disk is unknown
                self._fatal(f"flush failed with {type(exc).__name__}: {exc}")
        for write, error in zip(group, outcomes, strict=True):
            _resolve(write.done, error)

    def _apply(self, write: _Write) -> VersoError | None:
        if write.size_bytes:
            try:
                self.check_room(write.size_bytes)
            except DiskFull as error:
                return error
        return _outcome(write.change)


def end_process(reason: str) -> NoReturn:
    """End this process at once, without another flush."""
    _log.critical("vector store process ends: %s", reason)
    logging.shutdown()
    os._exit(70)  # EX_SOFTWARE of sysexits.h


def _outcome(action: Callable[[], None]) -> VersoError | None:
    try:
        action()
    except VersoError as error:
        return error
    except Exception as exc:  # noqa: BLE001 the engine raises plain Exception
        # Its message may quote a payload, which holds users' data.
        _log.error("the vector engine refused a write: %s", type(exc).__name__)
        return VectorsUnavailable(f"the vector engine refused a write: {type(exc).__name__}")
    return None


def _resolve(done: Future[None], error: VersoError | None) -> None:
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
