"""A child process is started, restarted when it dies, and never outlives the worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from verso_core.errors import ArtifactInvalid, EngineUnavailable, Unavailable
from verso_core.supervise import Process
from verso_worker.ipc.child import make_child
from verso_worker.ipc.client import Client

_SERVE = """
import os, signal, sys, time
from pathlib import Path
from typing import Any
from verso_worker.ipc.server import Server
server = Server(Path(sys.argv[1]), {
    "pid": lambda header, blobs: ({"pid": os.getpid()}, []),
    "die": lambda header, blobs: os._exit(7),
    # The stop may reach the process a moment after the call, so the handler must not answer.
    "freeze": lambda header, blobs: (os.kill(os.getpid(), signal.SIGSTOP), time.sleep(60)),
})
signal.signal(signal.SIGTERM, lambda *_: server.close())
server.serve_forever()
"""

_REFUSE = """
import sys
from pathlib import Path
from typing import Any
from verso_core.errors import ArtifactInvalid
from verso_worker.ipc.child import refuse
refuse(Path(sys.argv[1]), ArtifactInvalid("decoder.onnx: expected sha256 aa, got bb"))
"""

_WORKER = """
import sys, time
from pathlib import Path
from typing import Any
from verso_worker.ipc.child import make_child
child = make_child("engine", [sys.executable, "-c", sys.argv[2], sys.argv[1]],
              socket_path=Path(sys.argv[1]), ready_timeout_s=60)
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def new_child(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def make(program: str = _SERVE, *, ready_timeout_s: float = 60, **options: Any) -> Process:
        path = tmp_path / "s"
        made.append(
            make_child(
                "engine",
                [sys.executable, "-c", program, str(path)],
                socket_path=path,
                ready_timeout_s=ready_timeout_s,
                **options,
            )
        )
        return made[-1]

    yield make
    for child in made:
        child.stop()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path / "s", 60)
    yield client
    client.close()


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _until(condition: Callable[[], bool], timeout_s: float = 60) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_a_started_child_answers_and_a_stopped_one_is_gone(
    new_child: Callable[..., Process], client: Client
) -> None:
    child = new_child()
    child.start()
    assert child.ready
    header, _ = client.call("pid")
    assert header["pid"] == child.pid
    child.stop()
    assert child.pid is None
    assert not _alive(header["pid"])


@pytest.mark.parametrize("how", ["killed", "exits"])
def test_a_child_that_dies_is_started_again(
    new_child: Callable[..., Process], client: Client, how: str
) -> None:
    child = new_child()
    child.start()
    first = child.pid
    assert first is not None
    if how == "killed":
        os.kill(first, signal.SIGKILL)
    else:
        with pytest.raises(EngineUnavailable):
            client.call("die")
    assert _until(lambda: child.restarts == 1 and child.ready)
    assert client.call("pid")[0]["pid"] == child.pid != first


def _back(child: Process, restarts: int) -> bool:
    return child.restarts == restarts and child.ready


@pytest.mark.parametrize(
    ("settled_s", "pauses"), [(0.0, ["0.0", "0.0", "0.0"]), (60.0, ["0.0", "0.2", "1.0"])]
)
def test_only_a_child_that_has_not_worked_yet_is_waited_with(
    new_child: Callable[..., Process],
    caplog: pytest.LogCaptureFixture,
    settled_s: float,
    pauses: list[str],
) -> None:
    child = new_child(settled_s=settled_s)
    child.start()
    for turn in range(1, 4):
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        assert _until(partial(_back, child, turn))
    found = [re.search(r"restart in ([\d.]+) s", record.getMessage()) for record in caplog.records]
    assert [match[1] for match in found if match] == pauses


def test_a_child_that_hangs_is_replaced(new_child: Callable[..., Process], client: Client) -> None:
    child = new_child(hang_s=0.5)
    child.start()
    with pytest.raises(EngineUnavailable):
        client.call("freeze", timeout_s=1)
    assert _until(lambda: child.restarts >= 1 and _answers(client))


def _answers(client: Client) -> bool:
    """Whether the child answers; one that a busy machine holds up is replaced once more."""
    try:
        client.call("ping")
    except EngineUnavailable:
        return False
    return True


def test_a_refusal_is_raised_as_the_error_the_child_named(
    new_child: Callable[..., Process],
) -> None:
    with pytest.raises(ArtifactInvalid, match="expected sha256 aa, got bb"):
        new_child(_REFUSE).start()


def test_a_child_that_ends_early_is_an_error_with_its_status(
    new_child: Callable[..., Process],
) -> None:
    with pytest.raises(Unavailable, match="exit status 9"):
        new_child("import sys; sys.exit(9)").start()


def test_a_child_that_never_listens_is_given_up(new_child: Callable[..., Process]) -> None:
    child = new_child("import time; time.sleep(60)", ready_timeout_s=0.5)
    with pytest.raises(Unavailable, match=r"not ready within 0\.5 s"):
        child.start()
    assert child.pid is None


def test_a_child_that_ignores_sigterm_is_killed(new_child: Callable[..., Process]) -> None:
    child = new_child(_SERVE.replace("lambda *_: server.close()", "signal.SIG_IGN"))
    child.start()
    pid = child.pid
    assert pid is not None
    child.stop(grace_s=0.3)
    assert not _alive(pid)


def test_a_child_dies_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tmp_path / "s"), _SERVE], stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    pid = int(worker.stdout.readline())
    assert _alive(pid)
    worker.kill()
    worker.wait()
    worker.stdout.close()
    assert _until(lambda: not _alive(pid))
