"""Supervised processes: restarted when they die, gone when their supervisor is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from verso_core.supervise import Process

_SLEEP = "import time; print('up', flush=True); time.sleep(600)"
_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)"
)


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split(")")[1][:3]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Process]]:
    started: list[Process] = []

    def run(program: str) -> Process:
        process = Process(
            "trial",
            [sys.executable, "-c", program],
            log_path=tmp_path / "trial.log",
            environment={"VERSO_TRIAL": "42"},
        )
        started.append(process)
        process.start()
        return process

    yield run
    for process in started:
        process.stop(grace_s=0.5)


def test_a_process_that_dies_is_started_again(start: Callable[[str], Process]) -> None:
    process = start(_SLEEP)
    until(lambda: "up" in process.last_words())
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: process.pid not in (None, first))
    assert process.restarts == 1


def test_stop_ends_it_for_good(start: Callable[[str], Process]) -> None:
    process = start(_SLEEP)
    pid = process.pid
    assert pid is not None
    process.stop(grace_s=5.0)
    assert not alive(pid)
    assert process.pid is None


def test_a_process_that_ignores_sigterm_is_killed(start: Callable[[str], Process]) -> None:
    process = start(_STUBBORN)
    until(lambda: "up" in process.last_words())
    process.stop(grace_s=0.3)
    assert process.pid is None


def test_its_output_and_its_deaths_are_in_the_log(start: Callable[[str], Process]) -> None:
    process = start(
        "import os, sys; print(os.environ['VERSO_TRIAL']); sys.exit('broken on purpose')"
    )
    until(lambda: process.restarts >= 1)
    words = process.last_words()
    assert "42" in words
    assert "broken on purpose" in words
    assert "ended with exit status 1" in words


def test_it_dies_with_its_supervisor(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from verso_core.supervise import Process
log_path = Path({str(tmp_path / "log")!r})
p = Process("t", [sys.executable, "-c", {_SLEEP!r}], log_path=log_path, environment={{}})
p.start()
while "up" not in p.last_words(): time.sleep(0.02)
print(p.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        assert alive(child)
        supervisor.kill()
    until(lambda: not alive(child))


def test_a_full_disk_does_not_end_supervision(
    start: Callable[[str], Process], tmp_path: Path
) -> None:
    """Its log cannot be opened while the disk is full; once there is room it runs again."""
    process = start(_SLEEP)
    until(lambda: "up" in process.last_words())
    log = tmp_path / "trial.log"
    log.rename(tmp_path / "away")
    log.symlink_to("/dev/full/log")  # opening fails, as where no new file can be made
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.deaths >= 2 and process.pid is None)
    log.unlink()
    log.symlink_to("/dev/full")  # opened, but every write fails with ENOSPC
    until(lambda: process.pid is not None)
    os.kill(process.pid or 0, signal.SIGKILL)
    until(lambda: process.deaths >= 4)
    log.unlink()
    until(lambda: "up" in process.last_words())
