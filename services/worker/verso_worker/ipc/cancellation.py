"""End the calls of one piece of work from another thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextvars import ContextVar

from verso_core.errors import Cancelled, Unavailable

_cancellation: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


def current() -> Cancellation | None:
    """Return the cancellation that this thread has entered."""
    return _cancellation.get()


class Cancellation:
    """Ends the calls of one piece of work from another thread.

    Calls made in a thread while it has entered the cancellation can be ended by :meth:`cancel`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._connections: set[socket.socket] = set()

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Hang up the calls under way; later ones are refused."""
        with self._lock:
            self._cancelled = True
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let the calls that this thread makes in the block be cancelled."""
        token = _cancellation.set(self)
        try:
            yield
        finally:
            _cancellation.reset(token)

    @contextlib.contextmanager
    def covering(self, connection: socket.socket) -> Iterator[None]:
        """Hang up a connection if the work is cancelled in the block.

        Raises:
            Cancelled: it was, before the block or in it.
        """
        with self._lock:
            if not self._cancelled:
                self._connections.add(connection)
        try:
            if self._cancelled:
                raise Cancelled("cancelled, or done by another worker")
            yield
        except Unavailable as error:
            if self._cancelled:
                raise Cancelled("cancelled, or done by another worker") from error
            raise
        finally:
            with self._lock:
                self._connections.discard(connection)
