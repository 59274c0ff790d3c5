"""Log files that are kept within a bound while they are written."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from verso_standalone.logs import LogRotation

_MIB = 1 << 20


def test_a_process_that_writes_on_and_on_leaves_two_files_within_the_bound(tmp_path: Path) -> None:
    path, aside = tmp_path / "gateway.log", tmp_path / "gateway.log.1"
    rotation = LogRotation([path, tmp_path / "worker.log"], limit_bytes=_MIB)
    script = "import sys\nfor n in range(10**9): sys.stdout.write(f'line {n} ' + 'x' * 200 + '\\n')"
    with path.open("ab") as log:
        process = subprocess.Popen([sys.executable, "-c", script], stdout=log)
    try:
        while not aside.exists():
            rotation.step()
            time.sleep(0.01)
            assert process.poll() is None
        for _ in range(20):
            rotation.step()
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    rotation.step()
    assert path.stat().st_size <= _MIB
    assert aside.stat().st_size > _MIB
    assert aside.read_bytes().splitlines()[1].startswith(b"line ")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["gateway.log", "gateway.log.1"]


def test_a_short_log_stays_and_the_thread_ends(tmp_path: Path) -> None:
    path = tmp_path / "keeper.log"
    path.write_text("a line\n")
    rotation = LogRotation([path], limit_bytes=_MIB)
    rotation.start()
    rotation.stop()
    assert path.read_text() == "a line\n"
    assert [one.name for one in tmp_path.iterdir()] == ["keeper.log"]
