"""Facts about garbage and memory of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BODIES = """
import psutil
from verso_core import interpreter
interpreter.return_freed()
process = psutil.Process()
before = process.memory_info().rss
for size in (24, 6, 6, 1):
    body = [b"x" * (size << 20), b"y" * (size << 20)]
    kept = b"z" * 4096  # above it on the heap
    del body
print(process.memory_info().rss - before)
"""

_LOADED = """
import gc
from verso_core.interpreter import loading
with loading():
    assert not gc.isenabled()
    import verso_core.jobs
assert gc.isenabled()
print(any(found is verso_core.jobs.__dict__ for found in gc.get_objects()))
"""

_ENDED = """
import sys
from verso_core.interpreter import end_at_once
class Loud:
    def __del__(self):
        print("looked for")
circle = Loud()
circle.self = circle
if "--at-once" in sys.argv:
    end_at_once()
"""

_LOWERED = """
import os
from pathlib import Path
from verso_core.interpreter import lower_priority
before = os.nice(0)
lower_priority(7)
group = Path("/proc/self/autogroup")
nice = group.read_text().split()[-1] if group.exists() else "7"
print(os.nice(0) - before, os.getsid(0) == os.getpid(), nice)
"""


def _printed(program: str, *arguments: str) -> str:
    argv = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="of the GNU C library")
def test_the_memory_of_a_body_goes_back_with_it() -> None:
    assert int(_printed(_BODIES)) < 4 << 20


def test_garbage_is_not_looked_for_among_what_was_loaded() -> None:
    assert _printed(_LOADED) == "False"


def test_garbage_is_not_looked_for_at_the_end() -> None:
    assert _printed(_ENDED) == "looked for"
    assert _printed(_ENDED, "--at-once") == ""


def test_a_lower_priority_holds_among_all_sessions() -> None:
    assert _printed(_LOWERED) == "7 True 7"
