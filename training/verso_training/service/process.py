"""One training in a process of its own.

    parent -> child   standard input, held open: its end tells the child that the parent is gone
    child -> parent   standard output: a JSON object a line, how far it is
    child -> parent   ``result.json`` in the job's folder, written at the end and renamed into place

A process of its own gives all memory back when it ends, can be killed at any moment, and when it is
killed by the kernel for its memory, takes nothing with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from verso_core.errors import Unavailable

RESULT_NAME = "result.json"
_LOOK_S = 0.2
_GRACE_S = 5.0


class TrainingDied(Unavailable):
    """Raised when a training's process ended without a result."""


class Stopped(Exception):
    """Raised when a training was ended because it is no longer wanted."""


def run(
    folder: Path,
    *,
    environment: Mapping[str, str],
    tell: Callable[[dict[str, Any]], None],
    stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Run the training that ``folder`` describes, and give what it left in ``result.json``.

    Args:
        folder: of the job.
        environment: variables added to this process's own.
        tell: is given every line of progress.
        stopped: whether the training is no longer wanted; asked several times a second.

    Raises:
        TrainingDied: the process ended without a result.
        Stopped: ``stopped`` said so.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "verso_training.service.job", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    listener = threading.Thread(
        target=_listen, args=(process.stdout, tell), name="training", daemon=True
    )
    listener.start()
    try:
        while process.poll() is None:
            if stopped():
                raise Stopped
            time.sleep(_LOOK_S)
    finally:
        _end(process)
        listener.join()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
    try:
        result: dict[str, Any] = json.loads((folder / RESULT_NAME).read_bytes())
    except (OSError, ValueError) as exc:
        raise TrainingDied(f"the training ended with status {process.returncode}") from exc
    return result


def _listen(lines: IO[bytes], tell: Callable[[dict[str, Any]], None]) -> None:
    for line in lines:
        with contextlib.suppress(ValueError):  # whatever a library prints is no progress
            row = json.loads(line)
            if isinstance(row, dict):
                tell(row)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
