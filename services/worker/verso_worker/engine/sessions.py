"""ONNX Runtime sessions, made from bytes whose hashes were checked and never from a path."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import onnxruntime as ort
from numpy.typing import NDArray

from verso_core.errors import ArtifactInvalid

_LEVELS = {
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
}


class Device(StrEnum):
    """Where graphs run."""

    CPU = "cpu"
    CUDA = "cuda"


def open_session(
    graph: bytes,
    name: str,
    *,
    threads: int,
    device: Device,
    optimisation: str,
    base: Mapping[str, ort.OrtValue] | None = None,
) -> ort.InferenceSession:
    """Make a session of one graph.

    Args:
        graph: the ONNX file's content.
        name: the file's name, for errors.
        threads: cores one run may use.
        device: with CUDA, nodes without a CUDA kernel still run on the CPU.
        optimisation: level named by the artifact's numeric profile. "basic" folds the widening of
            stored weights and rewrites nothing whose result depends on the machine.
        base: weights that the graph names and does not hold, shared with other sessions; they must
            live as long as the session does.

    Raises:
        ArtifactInvalid: the bytes are not a graph this runtime can run, or the level is unknown.
    """
    if optimisation not in _LEVELS:
        raise ArtifactInvalid(f"expected optimisation of {sorted(_LEVELS)}, got {optimisation!r}")
    options = ort.SessionOptions()
    options.graph_optimization_level = _LEVELS[optimisation]
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin while they wait take the cores from the other sessions and from the
    # worker; with three sessions on two cores spinning halved the speed of a decoding step.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # A plan is kept for every shape, and batches have as many shapes as there are lengths.
    options.enable_mem_pattern = False
    if base:
        # The first call lets the graph load without the file it names; alone it would copy. The
        # second makes the session use the very memory. Kernels must not repack it: each session
        # would have a packed copy of its own.
        options.add_external_initializers(list(base), list(base.values()))
        for weight, value in base.items():
            options.add_initializer(weight, value)
        options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        return ort.InferenceSession(graph, options, providers=_providers(device))
    except Exception as exc:  # the runtime's errors have no common class of their own
        raise ArtifactInvalid(f"{name}: {exc}") from exc


class Load:
    """Counts the runs under way in one engine, whatever their graph."""

    def __init__(self) -> None:
        self._running = 0
        self._yielding = 0
        self._ended = -math.inf
        self._lock = threading.Lock()

    @contextmanager
    def run(self, *, yields: bool = False) -> Iterator[bool]:
        """Count a run from here on; yields whether it is alone.

        Args:
            yields: it lets others go first, and does not count for :attr:`idle_s`.
        """
        with self._lock:
            self._running += 1
            self._yielding += yields
            alone = self._running == 1
        try:
            yield alone
        finally:
            with self._lock:
                self._running -= 1
                self._yielding -= yields
                if not yields:
                    self._ended = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last run that yields to none; 0 while one is under way."""
        with self._lock:
            busy = self._running > self._yielding
            return 0.0 if busy else time.monotonic() - self._ended


class Sessions:
    """One graph for several threads: on all cores for a run alone, on one for runs side by side.

    A run that is alone is soonest done on all cores. Of runs side by side each keeps to one: on two
    cores some 8 % more texts a second than the same runs one after another on both, as no core
    waits for the other. A small graph gains more: waking the other core is most of its run.

    Args:
        wide: the session on all cores.
        narrow: the session on one core; None runs everything on ``wide``.
        load: the engine's.
    """

    def __init__(
        self, wide: ort.InferenceSession, narrow: ort.InferenceSession | None, *, load: Load
    ) -> None:
        self.wide = wide
        self._narrow = narrow or wide
        self._load = load

    def run(self, outputs: Sequence[str], feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run the graph once and return the named outputs."""
        with self._load.run() as alone:
            session = self.wide if alone else self._narrow
            found: list[NDArray[Any]] = session.run(list(outputs), dict(feeds))
        return found


def expect_names(
    session: ort.InferenceSession, name: str, *, inputs: Sequence[str], outputs: Sequence[str]
) -> None:
    """Check that a graph has the inputs and outputs the engine feeds and reads.

    Raises:
        ArtifactInvalid: it lacks one, or has an input that the engine does not feed.
    """
    found = {node.name for node in session.get_inputs()}
    if found != set(inputs):
        raise ArtifactInvalid(f"{name}: expected inputs {_list(inputs)}, got {_list(found)}")
    found = {node.name for node in session.get_outputs()}
    if not found >= set(outputs):
        raise ArtifactInvalid(f"{name}: expected outputs {_list(outputs)}, got {_list(found)}")


def _providers(device: Device) -> list[str | tuple[str, Mapping[str, Any]]]:
    cpu = "CPUExecutionProvider"
    if device is Device.CPU:
        return [cpu]
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise ArtifactInvalid("expected an ONNX Runtime with CUDA, got one without")
    # TF32 rounds products to 10 bits: far outside the margin the patches were written with.
    return [("CUDAExecutionProvider", {"use_tf32": "0"}), cpu]


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
