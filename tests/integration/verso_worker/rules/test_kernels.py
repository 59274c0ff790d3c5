"""The codec of lines is compiled beside other work, and at once when somebody waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.unit.test_house import ROOT

_WORKER = """
import os, time
from pathlib import Path
from verso_worker.rules.logs.kernels import Kernels

def compiling():
    text = "".join(one.read_text() for one in Path("/proc/self/task").glob("*/children"))
    return {int(pid): os.getpriority(os.PRIO_PROCESS, int(pid)) for pid in text.split()}

def first(holds):
    for _ in range(600):
        for pid, nice in compiling().items():
            if holds(pid, nice):
                return pid
        time.sleep(0.1)
    raise SystemExit(f"no such process: {compiling()}")

own = os.getpriority(os.PRIO_PROCESS, 0)
kernels = Kernels(after_s=0.0)
kernels.compile()
beside = first(lambda pid, nice: nice > own)
kernels.load()
first(lambda pid, nice: nice == own and pid != beside)
os._exit(beside in compiling())
"""


def test_lines_that_are_asked_for_do_not_wait_for_a_compiler_of_low_priority(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    environment.pop("NUMBA_DISABLE_JIT", None)
    subprocess.run([sys.executable, "-c", _WORKER], env=environment, check=True, timeout=120)


def test_a_checkout_is_set_up_with_the_codec_of_lines_compiled() -> None:
    """Else the first question to lines waits for it, and the gateway waits for a minute only."""
    argv = ["make", "-n", "-o", ".venv/.installed-dev", "setup"]
    steps = subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "-m verso_codecs.logs.warm" in steps
