"""The artifacts of a worker: the served ones, and the older ones that its records still need.

A patch can be read only by the decoder that wrote it. So a worker first copies an artifact into the
data folder, under its id, and serves the copy: an old record stays readable when the models folder
has only a newer artifact.

Each artifact runs in an engine process of its own. The served ones are started at once, the others
when the first of their records is read. A swap interrupts no call:

1. :meth:`ArtifactStore.load` starts a new engine, which runs the golden samples and is warm then.
   Until it is ready, and if it never is, the served artifacts stay as they are.
2. :meth:`ArtifactStore.serve` directs the next calls to it.
3. :meth:`ArtifactStore.tidy` stops an engine that is not served once it has been idle for a while:
   ONNX Runtime returns memory only with the end of its process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from verso_codecs.ngram import NgramTables
from verso_core.errors import ArtifactInvalid, EngineUnavailable, ModelUnknown
from verso_core.jobs import Collection
from verso_core.jobs.fitting import artifact_of
from verso_core.manifest import Artifact, load
from verso_core.record import Codec
from verso_core.registry import Channel, channel_of
from verso_worker.models.channels import Served, WithCanary
from verso_worker.models.copies import ArtifactCopies
from verso_worker.models.engines import EngineLauncher, RunningEngine
from verso_worker.models.tables import TableCache
from verso_worker.records import generation
from verso_worker.records.artifact import MixtureCodec, NgramCodec
from verso_worker.resource_metrics import KEPT, Running
from verso_worker.rules.ports.models import Model, Models

IDLE_S = 20.0
"""An engine that is not served is stopped after so many seconds without a call or a request."""


class ArtifactStore:
    """Holds a worker's artifacts; implements :class:`verso_worker.rules.ports.models.Models`.

    Args:
        keep: folder that holds copies of artifacts by id.
        run: folder of the engines' sockets.
        threads: threads of one graph run.
        device: ``cpu`` or ``cuda``.
        precision: of the encoder, ``float32`` or ``float16``.
        idle_s: seconds until an idle engine that is not served is stopped.
        tables: fitted tables of collections; None where there are none.
    """

    def __init__(
        self,
        keep: Path,
        run: Path,
        *,
        threads: int,
        device: str,
        precision: str = "float32",
        idle_s: float = IDLE_S,
        tables: TableCache | None = None,
    ) -> None:
        self._copies = ArtifactCopies(keep)
        self._launcher = EngineLauncher(run, threads, device, precision)
        self._idle_s = idle_s
        self._tables = tables
        self._lock = threading.Lock()
        self._starts: dict[str, threading.Lock] = {}
        self._running: dict[str, RunningEngine] = {}
        self._served: Served | None = None

    def encoder(self, codec: str) -> dict[str, Any]:
        """Describe how the encoder of an artifact runs; its precision may differ from the asked."""
        with self._lock:
            running = self._running.get(codec)
        return self._launcher.encoder(running)

    def open(self, folder: Path) -> Model:
        """Load an artifact and make it the current one.

        Raises:
            ArtifactInvalid: it is incomplete or altered, or fails its golden samples.
        """
        model = self.load(folder)
        self.serve(model.codec)
        return model

    def load(self, folder: Path) -> Model:
        """Verify an artifact, keep a copy and start its engine; the served artifacts do not change.

        Raises:
            ArtifactInvalid: it is incomplete or altered, or fails its golden samples.
            EngineUnavailable: its engine ended or was not ready in time.
        """
        artifact = self._copies.add(load(folder))
        about = artifact.manifest
        model = self._start(about.codec.id, artifact)
        if model.space != about.space.id:  # records name their codec alone
            raise ArtifactInvalid(
                f"expected a codec of its own, {about.codec.id} serves space {model.space}"
            )
        return model

    def await_passed(self) -> None:
        """Wait until the codecs of the current artifact have passed their golden samples.

        The first engine of a worker serves vectors before that, and the first such call, or one
        that needs a codec, starts the check.

        Raises:
            ArtifactInvalid: they have not passed.
            EngineUnavailable: the engine ended meanwhile; its successor checks before it serves.
        """
        with self._lock:
            running = self._running[self._now().stable]
        running.client.await_passed()

    def serve(
        self,
        stable: str,
        *,
        canary: str | None = None,
        share: float = 0.0,
        by_name: Mapping[str, str] | None = None,
    ) -> None:
        """Direct the next calls to these codecs, which must be loaded.

        Args:
            stable: codec of the current artifact.
            canary: codec that a share of the jobs writes with.
            share: part of all jobs, in [0, 1].
            by_name: codecs of the artifacts that are asked for by name, the stable one among them.
        """
        served = Served(stable, canary, share, by_name or {})
        with self._lock:
            for codec in served.codecs:
                if codec not in self._running:
                    raise EngineUnavailable(f"the artifact with codec {codec} is not loaded")
            self._served = served

    def current(self) -> Model:
        """Return the artifact that new collections use."""
        return self.get(self._now().stable)

    def canary(self, job_id: str) -> Models | None:
        """Return the artifacts as a job of the canary's share sees them; None for any other job."""
        served = self._now()
        if served.canary is None or channel_of(job_id, served.share) is Channel.STABLE:
            return None
        return WithCanary(self, served.canary)

    def writing(self, collection: Collection) -> Model:
        """Return the artifact that writes into a collection.

        It is the current one if the collection is of its space and has an artifact slot for it,
        otherwise the one that wrote last.
        """
        model = self.current()
        if model.space == collection.space and collection.with_slot(model.codec) is not None:
            return model
        known = (artifact_of(name) for name in reversed(collection.artifacts) if name)
        return self.get(next(name for name in known if collection.with_slot(name) is not None))

    def named(self, name: str | None) -> Model:
        """Return the artifact that serves under a name, or has a codec id; None is the current one.

        Raises:
            ModelUnknown: none does.
        """
        if name is None:
            return self.current()
        known = self._now().by_name
        if name in known.values():
            return self.get(name)
        if name not in known:
            raise ModelUnknown(f"no artifact {name!r} serves; there are {sorted(known)}")
        return self.get(known[name])

    def get(self, codec: str) -> Model:
        """Return the artifact with a codec id, or one with fitted tables by its generation's id.

        Start its engine if it does not run.

        Raises:
            EngineUnavailable: no artifact with this codec is kept here.
            ArtifactInvalid: the fitted tables are damaged, or decode to other texts here.
        """
        if codec != artifact_of(codec):
            return self._fitted(self.get(artifact_of(codec)), codec)
        with self._lock:
            running = self._running.get(codec)
            if running is not None:
                running.asked = time.monotonic()
                return running.model
        return self._start(codec)

    def codec_bytes(self, codec: str) -> int:
        """Return the size of the files that a codec decodes with; 0 where they are not kept."""
        return self._copies.codec_bytes(codec)

    def folder(self, codec: str) -> Path:
        """Return the folder of the artifact with a codec id.

        Raises:
            EngineUnavailable: no artifact with this codec is kept here.
        """
        return self._copies.folder(codec)

    def running(self) -> tuple[str, ...]:
        """Return the codecs whose engines run."""
        with self._lock:
            return tuple(self._running)

    def engines(self) -> dict[str, Running]:
        """Return the running engines by codec id, for the metrics."""
        with self._lock:
            served, found = self._served, dict(self._running)
        return {
            codec: Running(
                running.artifact,
                KEPT if served is None else served.channel(codec),
                running.child.pid,
                running.child.restarts,
            )
            for codec, running in found.items()
        }

    def figures(self, codec: str) -> dict[str, dict[str, float]]:
        """Return the counts of each lane of a running engine.

        Raises:
            EngineUnavailable: it has ended, or does not answer.
        """
        with self._lock:
            running = self._running.get(codec)
        if running is None:
            raise EngineUnavailable(f"no engine with codec {codec} runs")
        return running.client.figures()

    def tidy(self) -> int:
        """Stop the engines that are neither served nor used, and return their number."""
        with self._lock:
            served = self._served
            kept = frozenset[str]() if served is None else served.codecs
            old = [
                codec
                for codec, running in self._running.items()
                if codec not in kept and running.idle_s >= self._idle_s
            ]
            ended = [self._running.pop(codec) for codec in old]
        for running in ended:
            running.end()
        return len(ended)

    def close(self) -> None:
        """Stop all engines."""
        with self._lock:
            ended = list(self._running.values())
            self._running.clear()
            self._served = None
        for running in ended:
            running.end()

    def check_tables(self, codec: str, packed: bytes) -> None:
        """Read fitted tables as a load does, and decode their golden samples.

        Raises:
            ArtifactInvalid: one decodes to another text in this process.
        """
        generation.unpack(packed, _general(self.get(codec)))

    def _fitted(self, model: Model, name: str) -> Model:
        """Return a model that codes with the fitted tables of a generation as well."""
        if self._tables is None:
            raise EngineUnavailable(f"no tables are held of generation {name}")
        codec = MixtureCodec(self._tables.get(name, _general(model)))
        codecs = {**model.recorder.codecs, Codec.MIXTURE: codec}
        return replace(model, codec=name, recorder=replace(model.recorder, codecs=codecs))

    def _now(self) -> Served:
        if self._served is None:
            raise EngineUnavailable("no artifact has been opened yet")
        return self._served

    def _start(self, codec: str, artifact: Artifact | None = None) -> Model:
        """Start an engine once; calls of running engines do not wait meanwhile."""
        with self._lock:
            starting = self._starts.setdefault(codec, threading.Lock())
        with starting:
            with self._lock:
                if (running := self._running.get(codec)) is not None:
                    running.asked = time.monotonic()
                    return running.model
            running = self._launcher.launch(
                artifact or load(self._copies.folder(codec)), early=not self._running
            )
            with self._lock:
                self._running[codec] = running
            return running.model


def _general(model: Model) -> NgramTables:
    """Return the n-gram tables of an artifact."""
    codec = model.recorder.codecs[Codec.NGRAM]
    assert isinstance(codec, NgramCodec)
    return codec.tables
