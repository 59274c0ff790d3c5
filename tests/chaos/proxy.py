"""A TCP proxy that breaks connections: it resets them, stalls them, or swallows answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_LINGER_NONE = struct.pack("ii", 1, 0)  # close sends RST instead of FIN


@dataclass
class Proxy:
    """Stands before one server. ``swallow`` drops answers: what was asked is done, unheard."""

    server: tuple[str, int]
    swallow: bool = False
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Cut every connection with RST."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RD)  # wakes its reader
                end.close()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Let nothing through, with every connection left open."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def close(self) -> None:
        """Take no more connections and cut those there are."""
        self._listener.close()
        self._open.set()
        self.reset()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self.server)
                except OSError:
                    near.close()
                    continue
                with self._lock:
                    self._pairs.append((near, far))
                for source, drain, answers in ((near, far, False), (far, near, True)):
                    arguments = (source, drain, answers)
                    threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(self, source: socket.socket, drain: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                if answers and self.swallow:
                    self.reset()
                    return
                drain.sendall(data)
        with suppress(OSError):
            drain.shutdown(socket.SHUT_WR)
