"""Run the steps of an entry without anybody watching, and write what they found.

Each step is a process of its own. One that has ended is not run again as long as its command is the
same; one that was cut off runs again, and its command goes on where it was. A step that fails does
not stop the others but those that need it. When the minutes are over, or the process is told to
end, the step that runs gets SIGTERM.

The working folder holds for every step ``steps/NAME.json``, with what it was run on and how it
ended, and what it printed, ``NAME.out`` and ``NAME.err``. ``ENTRY/figures.json`` is written after
each step.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from studies.gpu import about
from studies.gpu.catalogue import Entry, Places, Step
from verso_core.errors import VersoError

_POLL_S = 0.1
_GRACE_S = 60.0
_TRAINING = Path(__file__).resolve().parents[2]
_BENCHES = _TRAINING.parent / "tests" / "bench"


class StepInvalid(VersoError):
    """Raised when a word of a step fits no path, or several."""

    code = "step_invalid"


class Status(StrEnum):
    """How far a step is."""

    WAITING = "not started"
    CUT_OFF = "cut off"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True)
class Record:
    """One step so far.

    Attributes:
        command: As in a shell.
        seconds: Of all its runs.
        exit: Of the last one; negative where a signal ended it.
        date: Of its last end.
        run_on: Machine, versions and commit of its last run.
    """

    name: str
    command: str
    status: Status = Status.WAITING
    seconds: float = 0.0
    exit: int | None = None
    date: str | None = None
    run_on: Mapping[str, Any] | None = None


class Queue:
    """Runs one entry in a working folder.

    Args:
        name: Of the entry.
        entry: Its steps.
        places: What their words stand for; folders are absolute, so that a later run from another
            one finds the same commands.
        minutes: For all steps.
        command: That started it, for the figures.
        clock: Returns seconds.
        say: Tells which step starts and how it ended.
    """

    def __init__(
        self,
        name: str,
        entry: Entry,
        places: Places,
        *,
        minutes: float,
        command: str,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], object] = print,
    ) -> None:
        self.name, self.entry, self.places = name, entry, places
        self.minutes, self.command = minutes, command
        self._clock, self._say = clock, say
        self._end_s = clock() + 60 * minutes
        self._about = about.described()
        self._steps = places.work / "steps"
        self._steps.mkdir(parents=True, exist_ok=True)
        self.figures = places.work / name / "figures.json"

    def run(self) -> bool:
        """Run what has not ended; return whether all steps have."""
        self._write()
        for step in self.entry.steps:
            record = self._record(step)
            if record.status is not Status.ENDED and self._may_start(step):
                self._keep(self._run(step, record))
                self._write()
        return all(self._record(step).status is Status.ENDED for step in self.entry.steps)

    def _may_start(self, step: Step) -> bool:
        ended = {one.name for one in self.entry.steps if self._record(one).status is Status.ENDED}
        return set(step.needs) <= ended and self._clock() < self._end_s

    def _run(self, step: Step, before: Record) -> Record:
        self._say(f"{step.name}: {before.command}")
        began_s = time.monotonic()
        cut_off, code = False, None
        try:
            cut_off, code = self._process(step)
        except StepInvalid as exc:
            self._say(f"{step.name}: {exc.detail}")
        status = Status.ENDED if code == 0 else Status.CUT_OFF if cut_off else Status.FAILED
        spent_s = time.monotonic() - began_s
        self._say(f"{step.name}: {status} after {spent_s:.0f} s")
        return Record(
            step.name,
            before.command,
            status,
            round(before.seconds + spent_s, 1),
            code,
            _now(),
            self._about,
        )

    def _process(self, step: Step) -> tuple[bool, int]:
        """Run a step's process; return whether it was cut off, and its exit status."""
        words = [_found(word) for word in self.places.words(step)]
        folders = [str(_TRAINING), str(_BENCHES), os.environ.get("PYTHONPATH")]
        path = os.pathsep.join(filter(None, folders))
        with (
            (self._steps / f"{step.name}.out").open("ab") as out,
            (self._steps / f"{step.name}.err").open("ab") as err,
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", step.module, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # so that what it starts ends with it
            )
            try:
                while process.poll() is None and self._clock() < self._end_s:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
            except KeyboardInterrupt:
                self._end_s = -math.inf
            finally:
                cut_off = process.poll() is None
                if cut_off:
                    _end(process)
        return cut_off, process.returncode

    def _record(self, step: Step) -> Record:
        """Return a step's record, if it is of the same command."""
        command = shlex.join(["python", "-m", step.module, *self.places.words(step)])
        path = self._steps / f"{step.name}.json"
        if path.exists():
            values = json.loads(path.read_text(encoding="utf-8"))
            if values["command"] == command:
                return Record(**{**values, "status": Status(values["status"])})
        return Record(step.name, command)

    def _keep(self, record: Record) -> None:
        _replace(self._steps / f"{record.name}.json", asdict(record))

    def _write(self) -> None:
        """Write the figures so far."""
        steps = [{**asdict(self._record(step)), **self._said(step)} for step in self.entry.steps]
        self.figures.parent.mkdir(exist_ok=True)
        values = {
            "entry": self.name,
            "command": self.command,
            "minutes": self.minutes,
            "date": _now(),
            **self._about,
            "ended": all(one["status"] == Status.ENDED for one in steps),
            "steps": steps,
        }
        _replace(self.figures, values)

    def _said(self, step: Step) -> dict[str, Any]:
        """Return the last JSON line that a step printed, and its files of figures."""
        work = self.places.work
        paths = sorted(path for pattern in step.figures for path in work.glob(pattern))
        out = self._steps / f"{step.name}.out"
        return {
            "printed": _last_json(out) if out.exists() else None,
            "files": {
                str(path.relative_to(work)): _last_json(path)
                if path.suffix == ".jsonl"
                else json.loads(path.read_text(encoding="utf-8"))
                for path in paths
            },
        }


def _found(word: str) -> str:
    """Return the one path that a pattern fits, or the word itself where it is none."""
    if "*" not in word:
        return word
    path = Path(word)
    fitting = [*path.parent.glob(path.name)]
    if len(fitting) != 1:
        raise StepInvalid(f"expected one path for {word}, got {len(fitting)}")
    return str(fitting[0])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_json(path: Path) -> Any:
    """Return the last line that is a whole JSON object; None without one."""
    for line in reversed(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                return json.loads(line)
    return None


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _replace(path: Path, values: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)
