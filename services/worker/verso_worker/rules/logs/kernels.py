"""Machine code of the codec of lines: compiled apart, loaded when there are lines.

A compiler in a worker's own interpreter would hold up every other request for a minute. So another
process compiles once, at the first start on a machine, and a worker only loads. Its priority is low
unless there are lines already: at low priority it gets no time on a machine that is busy.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

from verso_codecs.logs import warm
from verso_core.supervise import tethered

_AFTER_S = 180.0  # a platform that is started for a moment, or a demo, compiles nothing


class Kernels:
    """Compiles and loads the kernels in the background; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._needed = threading.Event()

    def compile(self) -> None:
        """Compile them before long, unless they are compiled: not while the platform starts."""
        self._begin("compile", self._compile_apart)

    def load(self) -> None:
        """Begin to load them, once they are compiled."""
        self._needed.set()
        compiling = self._begin("compile", self._compile_apart)

        def load() -> None:
            compiling.join()
            warm.warm()

        self._begin("load", load)

    def wait(self) -> None:
        """Wait until they are loaded."""
        self.load()
        self._threads["load"].join()

    def _begin(self, name: str, work: Callable[[], None]) -> threading.Thread:
        with self._lock:
            thread = self._threads.get(name)
            if thread is None:
                thread = threading.Thread(target=work, name=f"log codec {name}", daemon=True)
                self._threads[name] = thread
                thread.start()
            return thread

    def _compile_apart(self) -> None:
        if not warm.is_compiled():
            awaited = self._needed.wait(_AFTER_S)
            argv = tethered([sys.executable, "-m", warm.__name__, *([] if awaited else ["--nice"])])
            subprocess.run(argv, stdin=subprocess.DEVNULL, check=False)
