"""Start and stop the engine processes of artifacts."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verso_core.errors import VersoError
from verso_core.manifest import Artifact
from verso_core.supervise import Process
from verso_worker.engine.batching import BATCH_ROWS, ENCODE_BUDGET
from verso_worker.engine.operations import EngineClient
from verso_worker.ipc.child import make_child
from verso_worker.records.artifact import byte_codecs, cutter
from verso_worker.records.recorder import Recorder
from verso_worker.rules.ports.models import Model

_READY_TIMEOUT_S = 120.0
_HANG_S = 120.0


@dataclass(slots=True)
class RunningEngine:
    """An artifact with its engine process."""

    artifact: str
    model: Model
    child: Process
    client: EngineClient
    precision: str
    asked: float = field(default_factory=time.monotonic)

    @property
    def idle_s(self) -> float:
        """Seconds since the model was last requested or its engine called."""
        return min(self.client.idle_s, time.monotonic() - self.asked)

    def end(self) -> None:
        """Stop the engine; running calls are finished first."""
        self.child.stop()
        self.client.close()


@dataclass(frozen=True, slots=True)
class EngineLauncher:
    """Starts engines, all with the same settings.

    Args:
        run: folder of the engines' sockets.
        threads: threads of one graph run.
        device: ``cpu`` or ``cuda``.
        precision: of the encoder, ``float32`` or ``float16``.
    """

    run: Path
    threads: int
    device: str
    precision: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def launch(self, artifact: Artifact, *, early: bool) -> RunningEngine:
        """Start an engine; ``early`` serves vectors before the golden samples have passed."""
        codec = artifact.manifest.codec.id
        # Numbered, because an ending engine removes its socket while its successor may listen.
        socket = self.run / f"engine-{codec}-{next(self._numbers)}.sock"
        engine = make_child(
            f"engine-{codec}",
            [
                *(sys.executable, "-m", "verso_worker.engine"),
                *("--socket", str(socket)),
                *("--artifact", str(artifact.folder)),
                *("--threads", str(self.threads)),
                *("--device", self.device),
                *("--encoder-precision", self.precision),
                *("--checks", str(self.run / "checks")),
                *(["--early"] if early else []),
            ],
            socket_path=socket,
            ready_timeout_s=_READY_TIMEOUT_S,
            hang_s=_HANG_S,
        )
        client = EngineClient(socket)
        engine.launch()
        try:
            model = _model(artifact, client)  # its tables are read while the engine starts
            engine.await_started()
            precision = str(client.info()["encoder_precision"])
        except VersoError:
            engine.stop()
            raise
        return RunningEngine(artifact.id, model, engine, client, precision)

    def encoder(self, engine: RunningEngine | None) -> dict[str, Any]:
        """Describe how an engine's encoder runs; its precision may differ from the asked."""
        return {
            "precision": self.precision if engine is None else engine.precision,
            "threads": self.threads,
            "batch_tokens": ENCODE_BUDGET,
            "batch_rows": BATCH_ROWS,
        }


def _model(artifact: Artifact, engine: EngineClient) -> Model:
    manifest, cuts = artifact.manifest, cutter(artifact)
    return Model(
        codec=manifest.codec.id,
        space=manifest.space.id,
        dim=manifest.space.dim,
        max_tokens=manifest.space.max_encoder_tokens,
        pooling=manifest.space.pooling,
        int8_scale=manifest.space.int8_scale,
        cutter=cuts,
        recorder=Recorder(engine, byte_codecs(artifact), cuts),
        heads=engine,
    )
