"""The rivals of ``bench_serve``: how each is installed, started, asked and stopped.

What needs packages that the project does not have gets a virtual environment of its own, made when
it is asked for. A rival that cannot be installed or does not start is named with the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import Celery
from traffic import Route, Traffic

from verso_standalone.valkey import LOOPBACK, Valkey, find_program, free_port

_HERE = Path(__file__).parent
_READY_S = 120.0
_STOP_S = 10.0


class RivalMissing(Exception):
    """Raised when a rival cannot be measured here; the message says why."""


@contextmanager
def plain_server(artifact: Path, *, threads: int) -> Iterator[Route]:
    """FastAPI in front of one ONNX session."""
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "rival_server:app", "--port", str(port)]
    environment = {"RIVAL_ARTIFACT": str(artifact), "RIVAL_THREADS": str(threads)}
    with _running([*argv, "--log-level", "warning"], environment):
        url = f"http://{LOOPBACK}:{port}"
        _await(f"{url}/openapi.json")
        yield Route(
            f"{url}/embed",
            body=lambda text: {"texts": [text]},
            dim=lambda body: len(json.loads(body)[0]),
        )


class Tasks:
    """A Celery worker that embeds, and its broker."""

    def __init__(self, broker: str) -> None:
        self._app = Celery("rival-caller", broker=broker, backend=broker, set_as_current=False)

    def send(self, texts: Sequence[str], *, concurrency: int) -> Traffic:
        """Send a task for each text with so many in flight, and take their results in order."""
        started = time.perf_counter()
        flying: deque[tuple[float, Any]] = deque()
        latencies = []

        def take() -> None:
            sent, result = flying.popleft()
            if not result.get(timeout=_READY_S):
                raise RuntimeError("expected a vector")
            latencies.append(time.perf_counter() - sent)

        for text in texts:
            if len(flying) == concurrency:
                take()
            sent = time.perf_counter()
            flying.append((sent, self._app.send_task("rival.embed", args=[text])))
        while flying:
            take()
        return Traffic(len(texts), time.perf_counter() - started, latencies)


@contextmanager
def plain_tasks(artifact: Path, folder: Path, *, threads: int) -> Iterator[Tasks]:
    """Celery over a Valkey set up as Verso's own."""
    folder.mkdir()
    valkey = Valkey(find_program(), folder, port=free_port(), password="rival")
    environment = {
        "RIVAL_ARTIFACT": str(artifact),
        "RIVAL_THREADS": "1",
        "RIVAL_BROKER": valkey.url(1),
    }
    argv = [sys.executable, "-m", "celery", "--app", "rival_tasks", "worker", "--loglevel", "error"]
    argv += ["--pool", "threads", "--concurrency", str(threads)]
    with _running(valkey.argv(), {}):
        end = time.monotonic() + _READY_S
        while not valkey.answers():
            _check_time(end, "Valkey")
            time.sleep(0.1)
        with _running(argv, environment):
            tasks = Tasks(valkey.url(1))
            tasks.send(["ready?"], concurrency=1)
            yield tasks


def optimum_folder(artifact: Path, folder: Path) -> Path:
    """Write an artifact's encoder in the layout that optimum reads: same graph, pooling outside.

    The graph is cut where the masked mean begins, and its tokens' vectors become the output.
    """
    import onnx
    from onnx.utils import Extractor

    model = onnx.load(artifact / "encoder.onnx")
    [pooled] = [
        node.input[0]
        for node in model.graph.node
        if node.op_type == "Mul"
        and any(n.op_type == "ReduceSum" and node.output[0] in n.input for n in model.graph.node)
    ]
    states = onnx.helper.make_tensor_value_info(pooled, onnx.TensorProto.FLOAT, ["B", "T", "D"])
    model.graph.value_info.append(states)
    cut = Extractor(model).extract_model(["input_ids", "attention_mask"], [pooled])
    for node in cut.graph.node:
        node.output[:] = ["last_hidden_state" if x == pooled else x for x in node.output]
    cut.graph.output[0].name = "last_hidden_state"
    folder.mkdir(parents=True)
    onnx.save(cut, folder / "model.onnx")
    shutil.copy(artifact / "encoder_tokenizer.json", folder / "tokenizer.json")
    settings = {"tokenizer_class": "BertTokenizerFast", "model_max_length": 256}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 384}
    config |= {"num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@contextmanager
def infinity(model: Path, python: Path, *, threads: int) -> Iterator[Route]:
    """infinity-emb with its ONNX engine, from a folder in the layout that optimum writes.

    Raises:
        RivalMissing: it is not installed in that environment, or does not come up.
    """
    port = free_port()
    argv = [str(python.parent / "infinity_emb"), "v2", "--model-id", str(model)]
    argv += ["--engine", "optimum", "--device", "cpu", "--port", str(port), "--log-level", "error"]
    argv += ["--no-bettertransformer", "--lengths-via-tokenize", "--batch-size", "16"]
    environment = {
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": "",
    }
    if not Path(argv[0]).exists():
        raise RivalMissing(f"expected {argv[0]}: pip install 'infinity-emb[server,optimum]' there")
    with _running(argv, environment, folder=model.parent) as process:  # it leaves a cache there
        url = f"http://{LOOPBACK}:{port}"
        _await(f"{url}/health", process)
        yield Route(
            f"{url}/embeddings",
            body=lambda text: {"model": model.name, "input": [text]},
            dim=lambda body: len(json.loads(body)["data"][0]["embedding"]),
        )


@contextmanager
def _running(
    argv: Sequence[str], environment: Mapping[str, str], *, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    path = f"{_HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    process = subprocess.Popen(
        argv,
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _await(url: str, process: subprocess.Popen[bytes] | None = None) -> None:
    end = time.monotonic() + _READY_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - loopback
                return
        except (urllib.error.URLError, OSError):
            if process is not None and process.poll() is not None:
                assert process.stderr is not None
                words = process.stderr.read().decode(errors="replace").strip().splitlines()
                raise RivalMissing(words[-1] if words else "it ended at once") from None
            _check_time(end, url)
            time.sleep(0.2)


def _check_time(end: float, what: str) -> None:
    if time.monotonic() > end:
        raise RivalMissing(f"expected {what} to answer within {_READY_S:g} s")
