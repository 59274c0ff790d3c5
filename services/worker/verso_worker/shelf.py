"""The artifacts a worker can serve: the current one, and every older one its records still need.

Artifacts are data: without the decoder that wrote it a patch is noise. So the first thing a worker
does with an artifact is to copy it into the data folder, under its id, where it stays until nothing
refers to it; a new release of the default artifact then never makes an old record unreadable.

Each artifact runs in an engine process of its own. The current one is started with the worker, the
others when the first record of theirs is to be read.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

from verso_core.errors import EngineUnavailable
from verso_core.jobs import Collection
from verso_core.manifest import MANIFEST_NAME, Artifact, Manifest, load
from verso_worker.artifact import byte_codecs, cutter
from verso_worker.child import Child
from verso_worker.engine.operations import EngineClient
from verso_worker.ports import Model
from verso_worker.records import Recorder
from verso_worker.usage import Running

_READY_TIMEOUT_S = 120.0
_HANG_S = 120.0


class Shelf:
    """Holds a worker's artifacts; implements :class:`verso_worker.ports.Models`.

    Args:
        keep: folder where artifacts are kept by id.
        run: folder of the engines' sockets.
        threads: threads of one graph run.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, keep: Path, run: Path, *, threads: int, device: str) -> None:
        self._keep = keep
        self._run = run
        self._threads = threads
        self._device = device
        self._lock = threading.Lock()
        self._models: dict[str, Model] = {}
        self._engines: dict[str, tuple[Child, EngineClient]] = {}
        self._ids: dict[str, str] = {}
        self._current: str | None = None

    def open(self, folder: Path) -> Model:
        """Verify an artifact, keep a copy, start its engine and make it the current one.

        Raises:
            ArtifactInvalid: it is incomplete, altered, or fails its golden samples.
        """
        artifact = load(self._kept(load(folder)))
        with self._lock:
            model = self._start(artifact)
            self._current = model.codec
        return model

    def current(self) -> Model:
        """Give the artifact that new collections use."""
        if self._current is None:
            raise EngineUnavailable("no artifact has been opened yet")
        return self._models[self._current]

    def writing(self, collection: Collection) -> Model:
        """Give the artifact that writes into a collection.

        The current one where it shares the collection's space; otherwise the one that wrote last.
        """
        model = self.current()
        return model if model.space == collection.space else self.get(collection.artifacts[-1])

    def get(self, codec: str) -> Model:
        """Give the artifact with this codec id, starting its engine where it does not run yet.

        Raises:
            EngineUnavailable: no artifact with this codec is kept here.
        """
        with self._lock:
            if codec not in self._models:
                self._start(load(self._find(codec)))
            return self._models[codec]

    def running(self) -> dict[str, Running]:
        """Give the engines that run, by codec id."""
        return {
            codec: Running(self._ids[codec], codec == self._current, engine.pid, engine.restarts)
            for codec, (engine, _) in self._engines.copy().items()
        }

    def figures(self, codec: str) -> dict[str, dict[str, float]]:
        """Give what each lane of a running engine has done.

        Raises:
            EngineUnavailable: it does not answer.
        """
        return self._engines[codec][1].figures()

    def close(self) -> None:
        """End all engines."""
        with self._lock:
            for engine, client in self._engines.values():
                client.close()
                engine.stop()
            self._engines.clear()

    def _find(self, codec: str) -> Path:
        for path in self._keep.glob(f"*/{MANIFEST_NAME}"):
            if Manifest.model_validate_json(path.read_bytes()).codec.id == codec:
                return path.parent
        raise EngineUnavailable(f"the artifact with codec {codec} is not in {self._keep}")

    def _kept(self, artifact: Artifact) -> Path:
        """Copy an artifact into the data folder, whole or not at all."""
        place = self._keep / artifact.id
        if place.is_dir():
            return place
        draft = self._keep / f".{artifact.id}.{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        manifest = (artifact.folder / MANIFEST_NAME).read_bytes()
        for name, data in {**artifact.data, MANIFEST_NAME: manifest}.items():
            with (draft / name).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        try:
            draft.rename(place)
        except OSError:
            # Another worker on the same folder was first; its copy has the same hashes.
            shutil.rmtree(draft)
        return place

    def _start(self, artifact: Artifact) -> Model:
        codec = artifact.manifest.codec.id
        if codec in self._models:
            return self._models[codec]
        socket = self._run / f"engine-{codec}.sock"
        engine = Child(
            f"engine-{codec}",
            [
                *(sys.executable, "-m", "verso_worker.engine"),
                *("--socket", str(socket)),
                *("--artifact", str(artifact.folder)),
                *("--threads", str(self._threads)),
                *("--device", self._device),
            ],
            socket_path=socket,
            ready_timeout_s=_READY_TIMEOUT_S,
            hang_s=_HANG_S,
        )
        client = EngineClient(socket)
        model = _model(artifact, client)
        engine.start()
        self._ids[codec] = artifact.id
        self._engines[codec] = (engine, client)
        self._models[codec] = model
        return model


def _model(artifact: Artifact, engine: EngineClient) -> Model:
    manifest, cuts = artifact.manifest, cutter(artifact)
    return Model(
        codec=manifest.codec.id,
        space=manifest.space.id,
        dim=manifest.space.dim,
        int8_scale=manifest.space.int8_scale,
        cutter=cuts,
        recorder=Recorder(engine, byte_codecs(artifact), cuts),
    )
