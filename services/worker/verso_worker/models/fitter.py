"""Run fits in processes of their own, bounded in time, and end them when they are cancelled."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from verso_core.errors import EngineUnavailable
from verso_core.supervise import status, tethered
from verso_worker.records import fitting
from verso_worker.records.outputs import Trial, Wanted
from verso_worker.rules.ports.outcome import OnProgress

LIMIT_S = 900.0
"""A fit is ended after so many seconds."""

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class FitProcess:
    """Fits tables; implements :class:`verso_worker.rules.ports.models.Fitter`.

    folder: returns the folder of the artifact with a codec id.
    limit_s: seconds after which a fit is ended.
    """

    folder: Callable[[str], Path]
    limit_s: float = LIMIT_S

    def fit(self, codec: str, wanted: Wanted, on_progress: OnProgress) -> tuple[Trial, float]:
        """Fit tables on top of an artifact; return what came out and the processor seconds.

        Raises:
            EngineUnavailable: the process ended early, or took too long.
            Cancelled: raised by ``on_progress``; the process is ended.
            ArtifactInvalid: a golden sample does not decode to its text.
        """
        # files without a name: a worker that is killed leaves no texts behind
        with tempfile.TemporaryFile() as request, tempfile.TemporaryFile() as reply:
            request.write(fitting.pack_request(self.folder(codec), wanted))
            request.seek(0)
            files = (request.fileno(), reply.fileno())
            argv = [sys.executable, "-m", fitting.__name__, *map(str, files)]
            process = subprocess.Popen(tethered(argv), stdin=subprocess.DEVNULL, pass_fds=files)
            try:
                self._await(process, on_progress)
            finally:
                process.kill()
                process.wait()
            if process.returncode:
                raise EngineUnavailable(f"the fit ended without a result ({status(process)})")
            reply.seek(0)
            return fitting.read_reply(reply.read())

    def _await(self, process: subprocess.Popen[bytes], on_progress: OnProgress) -> None:
        began = time.monotonic()
        while process.poll() is None:
            spent_s = time.monotonic() - began
            if spent_s > self.limit_s:
                raise EngineUnavailable(f"a fit took longer than {self.limit_s:g} s")
            on_progress("fit", round(spent_s), round(self.limit_s))
            time.sleep(_POLL_S)
