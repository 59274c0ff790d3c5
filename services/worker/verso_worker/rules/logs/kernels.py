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

_PROGRAM = (sys.executable, "-m", warm.__name__)
_LOOK_S = 0.5
_AFTER_S = 20.0  # a platform that is started for a moment compiles nothing


class Kernels:
    """Compiles and loads the kernels in the background; any number of threads may share it.

    Args:
        after_s: from the first call to a compilation that nobody waits for, seconds.
    """

    def __init__(self, *, after_s: float = _AFTER_S) -> None:
        self._after_s = after_s
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
        if warm.is_compiled() or self._compiled_beside():
            return
        # At low priority it would not end on a busy machine; what was compiled stays in the cache.
        subprocess.run(tethered(_PROGRAM), stdin=subprocess.DEVNULL, check=False)

    def _compiled_beside(self) -> bool:
        """Whether they were compiled at low priority before somebody waited for them."""
        if self._needed.wait(self._after_s):
            return False
        argv = tethered([*_PROGRAM, "--nice"])
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if self._needed.wait(_LOOK_S):
                    process.terminate()
                    return False
        return True
