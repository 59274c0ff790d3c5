"""A clock of the day that a test sets for a server, which runs the same code as ever.

A library under the process (``clock.c``) answers it what a file holds: a time of the test's own,
or the machine's time and an offset.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path


class Clock:
    """The clock of the processes that are started with its settings.

    Args:
        folder: for the library and its file; it must outlive the processes.
    """

    def __init__(self, folder: Path) -> None:
        library, file = folder / "clock.so", folder / "clock"
        source = Path(__file__).with_name("clock.c")
        flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
        subprocess.run(["cc", *flags, "-o", library, source, "-ldl"], check=True)
        file.write_bytes(bytes(16))
        self.settings = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(file)}
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 16)

    @staticmethod
    def lacks() -> str | None:
        """Return what it needs and this machine does not have."""
        return "expected a C compiler" if shutil.which("cc") is None else None

    def set_ms(self, now: int) -> None:
        """Set the time, Unix milliseconds; it stands still until it is set again."""
        struct.pack_into("q", self._memory, 0, now * 1000)

    def jump(self, offset_s: float) -> None:
        """Let the time run so far from the machine's own, seconds."""
        struct.pack_into("q", self._memory, 8, round(offset_s * 1_000_000))
