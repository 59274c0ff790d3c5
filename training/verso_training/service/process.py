"""One training in its own process.

    parent -> child   standard input, held open: end of file means that the parent is gone
    child -> parent   standard output: progress, one JSON object a line
    child -> parent   ``result.json`` in the job's folder, written at the end and renamed into place

A separate process frees all its memory when it ends, can be killed at any moment, and does not take
the service with it if the kernel kills it for its memory.
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
_POLL_S = 0.2
_GRACE_S = 5.0


class TrainingDied(Unavailable):
    """Raised when a training's process ended without a result."""


class Stopped(Exception):
    """Raised when a training was stopped before its end."""


def run(
    folder: Path,
    *,
    environment: Mapping[str, str],
    on_progress: Callable[[dict[str, Any]], None],
    stopped: Callable[[], bool],
) -> dict[str, Any]:
    """Run the training that ``folder`` describes, and return its ``result.json``.

    Args:
        folder: the job's folder.
        environment: variables added to those of this process.
        on_progress: called with every line of progress.
        stopped: whether to stop the training; called several times a second.

    Raises:
        TrainingDied: the process ended without a result.
        Stopped: ``stopped`` returned True.
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
        target=_listen, args=(process.stdout, on_progress), name="training", daemon=True
    )
    listener.start()
    try:
        while process.poll() is None:
            if stopped():
                raise Stopped
            time.sleep(_POLL_S)
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


def _listen(lines: IO[bytes], on_progress: Callable[[dict[str, Any]], None]) -> None:
    for line in lines:
        with contextlib.suppress(ValueError):  # a library may print other lines
            row = json.loads(line)
            if isinstance(row, dict):
                on_progress(row)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
