"""Facts about the memory of bodies that are gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import psutil
from verso_gateway import memory
memory.return_freed()
process = psutil.Process()
before = process.memory_info().rss
for size in (24, 6, 6, 1):
    body = [b"x" * (size << 20), b"y" * (size << 20)]
    kept = b"z" * 4096  # above it on the heap
    del body
print(process.memory_info().rss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of the GNU C library")
def test_the_memory_of_a_body_goes_back_with_it() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True)
    assert int(done.stdout) < 4 << 20
