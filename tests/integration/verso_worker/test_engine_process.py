"""The engine as a process: ready when checked, back after a kill, gone when asked."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from verso_core.errors import ArtifactInvalid, EngineUnavailable, VectorInvalid
from verso_core.supervise import Process
from verso_worker.engine.operations import EngineClient
from verso_worker.ipc.child import make_child

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"
TEXTS = [b"connection to worker at 10.0.4.2 was reset", b"\xff\xfe", b"", b"the patch is small"]


@pytest.fixture
def start_engine(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(artifact: Path = ARTIFACT) -> Process:
        socket_path = tmp_path / "engine.sock"
        argv = [sys.executable, "-m", "verso_worker.engine", "--socket", str(socket_path)]
        child = make_child(
            "engine",
            [*argv, "--artifact", str(artifact), "--threads", "1"],
            socket_path=socket_path,
            ready_timeout_s=90,
        )
        started.append(child)
        child.start()
        return child

    yield start
    for child in started:
        child.stop()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EngineClient]:
    client = EngineClient(tmp_path / "engine.sock", timeout_s=120)
    yield client
    client.close()


def test_texts_come_back_over_the_socket(
    start_engine: Callable[..., Process], client: EngineClient
) -> None:
    start_engine()
    encoded = client.encode(TEXTS)
    assert encoded.vectors.shape == (len(TEXTS), client.info()["dim"])
    payloads = client.code(TEXTS, encoded.vectors)
    assert [payload is None for payload in payloads] == [False, True, False, False]
    for disturbed in (False, True):
        texts = client.read(
            [payload or b"" for payload in payloads], encoded.vectors, disturbed=disturbed
        )
        assert [texts[0], *texts[2:]] == [TEXTS[0], *TEXTS[2:]]
    kept = [0, 2, 3]
    drafts = [TEXTS[0], b"a wrong draft", TEXTS[3]]
    texts = client.read(
        [payloads[row] or b"" for row in kept], encoded.vectors[kept], drafts=drafts
    )
    assert texts == [TEXTS[row] for row in kept]
    [guess] = client.guess(encoded.vectors[:1], beam=2, max_tokens=8)
    assert 0 < guess.confidence <= 1
    assert client.encode([]).tokens == []
    with pytest.raises(VectorInvalid):
        client.code(TEXTS, np.zeros((len(TEXTS), 5), np.float32))


def test_an_engine_killed_in_a_call_is_unavailable_and_comes_back(
    start_engine: Callable[..., Process], client: EngineClient
) -> None:
    child = start_engine()
    failures: list[EngineUnavailable] = []

    def work() -> None:
        try:
            while True:
                client.encode([b"some text"] * 64)
        except EngineUnavailable as exc:
            failures.append(exc)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    thread.join(120)
    assert [failure.retryable for failure in failures] == [True]
    deadline = time.monotonic() + 120
    while not (child.restarts and child.ready) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert client.encode([b"some text"]).vectors.shape[0] == 1


def spent_s(child: Process) -> float:
    """Return the processor time that a child has taken."""
    times = psutil.Process(child.pid).cpu_times()
    return float(times.user + times.system)


def test_a_stopped_engine_finishes_the_call_in_hand(
    start_engine: Callable[..., Process], client: EngineClient
) -> None:
    child = start_engine()
    text = b"a long line of a log that takes a moment to read back, number 1234567890"
    vectors = np.repeat(client.encode([text]).vectors, 400, axis=0)
    [payload] = client.code([text], vectors[:1])
    assert payload is not None
    found: list[list[bytes | None]] = []
    thread = threading.Thread(target=lambda: found.append(client.read([payload] * 400, vectors)))
    thread.start()
    before = spent_s(child)
    while spent_s(child) < before + 0.05 and not found:  # it has the call in hand
        time.sleep(0.01)
    child.stop(grace_s=120)
    thread.join(120)
    assert found == [[text] * 400]


def test_a_broken_artifact_is_refused_by_name(
    start_engine: Callable[..., Process], tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(ARTIFACT, tmp_path / "broken"))
    (broken / "decoder.onnx").write_bytes(b"")
    with pytest.raises(ArtifactInvalid, match=r"decoder\.onnx: expected sha256"):
        start_engine(broken)
