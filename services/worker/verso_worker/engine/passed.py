"""Which artifacts have passed all of their golden samples on this machine, and a deferred check.

The check gives the same result as long as artifact, libraries, our own code and processor are the
same. So all samples run once, and an engine that starts again runs the first few.

That one time may take longer than everything else in a start: the codecs' kernels are compiled
first. A worker's first engine therefore serves vectors once these have passed, and
:class:`CodecGate` checks the codecs when the worker is ready. If they fail, the worker ends; the
next start runs the whole check before it serves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import onnxruntime as ort
import tokenizers
import zstandard

import verso_codecs
import verso_worker
from verso_core.errors import ArtifactInvalid, NotReady, VersoError
from verso_core.manifest import Artifact

_CPU_FIELDS = ("model name", "flags", "Features", "CPU part")
_LIBRARIES = (numba, np, ort, tokenizers, zstandard)


@dataclass(frozen=True, slots=True)
class PassedChecks:
    """A folder with an empty file for each passed check.

    Args:
        folder: created when the first check has passed.
        settings: what else the result depends on: threads, device, precision.
    """

    folder: Path
    settings: tuple[str, ...]

    def holds(self, artifact: Artifact) -> bool:
        """Whether the artifact passed here before, with everything as it is now."""
        return self._path(artifact).exists()

    def add(self, artifact: Artifact) -> None:
        """Note that the artifact passed; a folder that cannot be written is no failure."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._path(artifact).touch()

    def first_try(self, artifact: Artifact) -> bool:
        """Whether this is the first try to check the artifact here; the next call says False."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._path(artifact).with_suffix(".tried").touch(exist_ok=False)
        except OSError:  # there already, or the folder cannot be written
            return False
        return True

    def _path(self, artifact: Artifact) -> Path:
        files = {name: file.sha256 for name, file in artifact.manifest.files.items()}
        known = [files, self.settings, sys.version, sorted(_versions()), _cpu(), sorted(_sources())]
        return self.folder / hashlib.sha256(json.dumps(known).encode()).hexdigest()


class CodecGate:
    """Runs a deferred check before the first call that needs a codec; the others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._check: Callable[[], None] | None = None
        self._error: VersoError | None = None

    def defer(self, check: Callable[[], None]) -> None:
        """Run a check when :meth:`await_passed` is first called."""
        self._check = check

    def await_passed(self, *, patience_s: float | None = None) -> None:
        """Return once the check has passed.

        Args:
            patience_s: how long to wait for a check that runs, seconds; None until it has ended.

        Raises:
            ArtifactInvalid: it failed.
            NotReady: it still runs.
        """
        if not self._lock.acquire(timeout=-1 if patience_s is None else patience_s):
            raise NotReady("the codecs are compiled and checked, as once on each machine")
        try:
            if self._check is not None:
                try:
                    self._check()
                except VersoError as error:
                    self._error = error
                except Exception as error:  # noqa: BLE001 - whatever it is, no codec may be used
                    self._error = ArtifactInvalid(f"golden samples cannot run: {error!r}")
                self._check = None
        finally:
            self._lock.release()
        if self._error is not None:
            raise ArtifactInvalid(self._error.detail)


def _versions() -> Iterator[str]:
    for library in _LIBRARIES:
        yield f"{library.__name__} {library.__version__}"


def _cpu() -> list[str]:
    """Describe the first processor."""
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
        return [line for line in first.splitlines() if line.startswith(_CPU_FIELDS)]
    return [platform.machine(), platform.processor()]


def _sources() -> Iterator[str]:
    """Yield the state of each module that takes part in a check."""
    for package in (verso_codecs, verso_worker):
        for path in Path(package.__path__[0]).rglob("*.py"):
            state = path.stat()
            yield f"{path} {state.st_mtime_ns} {state.st_size}"
