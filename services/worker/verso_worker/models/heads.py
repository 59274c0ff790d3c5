"""Which version of each head is served: the registry's if it is valid, else the last valid one.

The registry is read again whenever its file changes. A version that was published, promoted or
rolled back therefore serves from the next job on, without a restart. A version that cannot be
served is reported in :meth:`HeadStore.states` and in the log, and the version before it is served.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from verso_core import heads, registry
from verso_core.errors import ArtifactInvalid, EngineUnavailable, HeadInvalid, HeadUnknown
from verso_core.heads import CARD, SIGNALS, Head, Task
from verso_core.jobs import AnySlice
from verso_core.registry import REGISTRY_NAME, Channel, Registry, Rollout, channel_of
from verso_worker.models import canary as trials
from verso_worker.models.agreement import agreement
from verso_worker.models.comparison import Comparisons, Pair
from verso_worker.records.confidence import Statistics
from verso_worker.rules.ports.models import Models, ServedHead, StableRun

T = TypeVar("T")
_EVERY_S = 1.0
_FIRST_S = 30.0
_DESCRIBED = {
    *("version", "created", "task", "reads", "space", "labels", "none_label", "chunk"),
    "text_unit",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A version whose files match their hashes."""

    head: Head
    folder: Path
    statistics: Statistics | None


class HeadStore:
    """Holds a worker's heads; implements :class:`verso_worker.rules.ports.models.Heads`.

    Args:
        folder: the models folder, which holds the registry and the heads' folders.
        models: the artifacts whose encoders the heads read.
        comparisons: compares canaries with stable versions; None compares nothing.
        on_compared: called with a head's name and the numbers of items on which its canary and the
            stable version agreed and differed.
    """

    def __init__(
        self,
        folder: Path,
        models: Models,
        *,
        comparisons: Comparisons | None = None,
        on_compared: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._folder = folder
        self._models = models
        self.comparisons = comparisons
        self._on_compared = on_compared
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._registry = Registry()
        self._checked: dict[tuple[str, str], _Checked] = {}
        self._faults: dict[tuple[str, str], str] = {}
        self._good: dict[str, str] = {}
        self._passed: set[tuple[str, str, str]] = set()
        self._trials: dict[tuple[str, str], Counter[bool]] = {}
        self._agreement: dict[tuple[str, str], Counter[bool]] = {}
        self._over = threading.Event()
        self._loaded = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="heads", daemon=True)

    def start(self) -> None:
        """Load what the registry names, and follow the registry in a thread.

        Returns when the named heads are loaded, which takes as much CPU time as a hundred embeds,
        so that the worker's first jobs do not compete with it. It waits half a minute at most,
        because other work needs no head.
        """
        self._thread.start()
        self._loaded.wait(_FIRST_S)

    def stop(self) -> None:
        """Stop following the registry."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def get(self, name: str, *, task: Task, job: str | None) -> ServedHead:
        """Return the version of a head for a job; if ``job`` is None, the stable one.

        A job that is a :class:`Channel` chooses itself. The name may be that of a task, such as
        ``relevance``.

        Raises:
            HeadUnknown: there is no head of this name, or it does another task.
            HeadInvalid: its folder is invalid, and no earlier version was served.
        """
        name = self._read().head_of(name)
        rollout = self._read().rollout(name)
        channel = Channel.STABLE
        if isinstance(job, Channel):
            channel = job
        elif job is not None and rollout.canary is not None:
            channel = channel_of(job, rollout.share)
        checked, channel = self._choose(name, rollout, channel)
        if checked.head.task is not task:
            raise HeadUnknown(f"expected a head to {task}; {name} does {checked.head.task}")
        model = self._models.current()
        if model.space != checked.head.space:
            raise HeadInvalid(
                f"head {name}: expected one of space {model.space}, got {checked.head.space}"
            )
        return ServedHead(checked.head, checked.folder, channel, model, checked.statistics)

    def run_job(
        self,
        names: Sequence[str],
        call: Callable[[str | None], T],
        *,
        job: str,
        beside: StableRun[T] | None = None,
    ) -> T:
        """Run a job with the heads that its id chooses; if a canary fails it, without canaries."""
        return trials.run_job(self, names, call, job=job, beside=beside)

    def canary(self, name: str, job: str) -> str | None:
        """Return the canary's version if the job is of its share, else None."""
        name = self._read().head_of(name)
        rollout = self._read().rollout(name)
        version = rollout.canary
        if version is None or (name, version) in self._faults:
            return None
        channel = job if isinstance(job, Channel) else channel_of(job, rollout.share)
        return version if channel is Channel.CANARY else None

    def tried(self, name: str, version: str, error: BaseException | None) -> None:
        """Count a job that a canary ran; ``error`` is None if it succeeded.

        A canary that fails too often is reported as one that cannot be served; the
        :class:`~verso_worker.models.rollout.RegistryWatcher` then withdraws it.
        """
        name = self._read().head_of(name)
        rollout = self._read().rollout(name)
        trial = rollout.trial_of_canary
        if rollout.canary != version or trial is None:
            return  # it was promoted, withdrawn or replaced meanwhile
        with self._lock:
            counts = self._trials.setdefault((name, trial), Counter())
            counts[error is None] += 1
            passed, failed = counts[True], counts[False]
        if error is not None and (reason := trials.verdict(passed, failed, error)) is not None:
            self._blame(name, version, reason)

    def compared(self, canaries: Mapping[str, str], work: AnySlice, pair: Pair[Any]) -> None:
        """Note what the versions of canaries, by head, and the stable versions said of a job."""
        if self.comparisons is None:
            return
        for given, version in canaries.items():
            name = self._read().head_of(given)
            rollout = self._read().rollout(name)
            if rollout.canary != version or rollout.trial_of_canary is None:
                continue  # it was promoted or withdrawn meanwhile
            trial = rollout.trial_of_canary
            labels = self._common_labels(name, rollout)
            found = agreement(work.kind, pair.canary, pair.stable, head=name, labels=labels)
            self.comparisons.add_agreement(trial, agreed=found.agreed, differed=found.differed)
            if len(canaries) == 1:  # of several nobody knows which one took how long
                self.comparisons.add_seconds(
                    trial, canary_s=pair.canary_s, stable_s=pair.stable_s, texts=len(work.accepted)
                )
            with self._lock:
                counts = self._agreement.setdefault((name, trial), Counter())
                counts.update({True: found.agreed, False: found.differed})
            if self._on_compared is not None:
                self._on_compared(name, found.agreed, found.differed)

    def judged(self, name: str, scores: Sequence[tuple[float, float]]) -> None:
        """Note the Brier scores of a head's canary and its stable version on labelled texts."""
        trial = self._read().rollout(self._read().head_of(name)).trial_of_canary
        if self.comparisons is not None and trial is not None:
            self.comparisons.add_scores(trial, scores)

    def review(self) -> None:
        """Blame each canary that is worse than its stable version; it is then withdrawn."""
        if self.comparisons is None:
            return
        for name, rollout in self._read().heads.items():
            if rollout.canary is None or (name, rollout.canary) in self._faults:
                continue
            worse = self.comparisons.review(rollout.trial_of_canary or rollout.canary)
            if worse is not None:
                self._blame(name, rollout.canary, worse.reason)

    def _common_labels(self, name: str, rollout: Rollout) -> frozenset[str] | None:
        """Return the labels that both versions of a head have; None for a head without labels."""
        versions = [one for one in (rollout.stable, rollout.canary) if one is not None]
        try:
            own = [frozenset(self._check(name, version).head.labels) for version in versions]
        except ArtifactInvalid:
            return None
        return frozenset.intersection(*own) or None

    def refresh(self) -> None:
        """Load what the registry names, so that the first job of a new version does not wait."""
        for name, rollout in self._read().heads.items():
            for channel in Channel:
                version = rollout.serves(channel)
                if version is None or (name, version) in self._faults:
                    continue
                try:
                    self._load(self._check(name, version))
                except ArtifactInvalid as error:
                    self._blame(name, version, error.detail)
                except EngineUnavailable as error:
                    _log.warning("head %s not loaded, engine unavailable: %s", name, error.detail)

    def states(self) -> list[dict[str, Any]]:
        """Describe all heads, by name: the version and the abilities of each channel.

        ``trial`` has the counts of a canary since this worker started.
        """
        found, now = [], self._read()
        for name, rollout in sorted(now.heads.items()):
            tasks = [task for task in sorted(now.tasks) if now.head_of(task) == name != task]
            state: dict[str, Any] = {"name": name, "share": rollout.share, "tasks": tasks}
            for channel in Channel:
                version = rollout.serves(channel)
                state[channel.value] = None if version is None else self._about(name, version)
            if (trial := rollout.trial_of_canary) is not None:
                state["trial"] = self._trial(name, trial)
            found.append(state)
        return found

    def _trial(self, name: str, trial: str) -> dict[str, int]:
        """Return what this worker has counted of a canary."""
        with self._lock:
            jobs = self._trials.get((name, trial), Counter())
            subjects = self._agreement.get((name, trial), Counter())
        return {
            "passed": jobs[True],
            "failed": jobs[False],
            "agreed": subjects[True],
            "differed": subjects[False],
        }

    def report(self, name: str, channel: Channel) -> tuple[Head, bytes]:
        """Return the version that a channel serves, and its card: Markdown, UTF-8.

        Raises:
            HeadUnknown: the channel serves no head of this name.
            HeadInvalid: its folder is invalid.
        """
        name = self._read().head_of(name)
        version = self._read().rollout(name).serves(channel)
        if version is None:
            raise HeadUnknown(f"no {channel} version of head {name!r}")
        loaded = heads.load(registry.head_folder(self._folder, name, version))
        return loaded.head, loaded.data[CARD]

    def _follow(self) -> None:
        seen: Registry | None = None
        while not self._over.is_set():
            if (now := self._read()) is not seen:
                seen = now
                try:
                    self.refresh()
                except Exception:  # noqa: BLE001 - each head is then loaded with its first job
                    _log.exception("heads were not loaded in advance")
            self._loaded.set()
            self._over.wait(_EVERY_S)

    def _about(self, name: str, version: str) -> dict[str, Any]:
        try:
            head = self._check(name, version).head
        except ArtifactInvalid as error:
            return {"version": version, "error": {"code": error.code, "detail": error.detail}}
        about = head.model_dump(
            mode="json",
            include=_DESCRIBED,
        )
        calibration = head.calibration
        about["metrics"] = dict(head.metrics)
        about["accept_by"] = calibration.accept_by.value
        about["accept_errors"] = sorted(calibration.conformal, key=float)
        about["data"] = list(head.lineage.data)
        about["licence"] = head.lineage.licence
        if (fault := self._faults.get((name, version))) is not None:
            about["error"] = {"code": HeadInvalid.code, "detail": fault}
        return about

    def _choose(self, name: str, rollout: Rollout, channel: Channel) -> tuple[_Checked, Channel]:
        """Return the channel's version; if it is invalid, the next version that may serve."""
        first: ArtifactInvalid | None = None
        for tried, version in (
            (channel, rollout.serves(channel)),
            (Channel.STABLE, rollout.stable),
            (Channel.STABLE, self._good.get(name)),
        ):
            if version is None:
                continue
            try:
                if (fault := self._faults.get((name, version))) is not None:
                    raise HeadInvalid(fault)
                checked = self._check(name, version)
                self._load(checked)
            except ArtifactInvalid as error:
                self._blame(name, version, error.detail)
                first = first or error
                continue
            if tried is Channel.STABLE:
                self._good[name] = version
            return checked, tried
        raise first or HeadUnknown(f"no {channel} version of head {name!r}")

    def _check(self, name: str, version: str) -> _Checked:
        key = (name, version)
        with self._lock:
            if key not in self._checked:
                loaded = heads.load(registry.head_folder(self._folder, name, version))
                if (loaded.head.name, loaded.head.version) != key:
                    got = f"{loaded.head.name} {loaded.head.version}"
                    raise HeadInvalid(f"expected head {name} {version}, got {got}")
                data = loaded.data.get(SIGNALS)
                statistics = None if data is None else Statistics.read(data)
                self._checked[key] = _Checked(loaded.head, loaded.folder, statistics)
            return self._checked[key]

    def _load(self, checked: _Checked) -> None:
        """Let the artifact's engine check a version, once.

        An engine that was started again gets the head from the call that needs it. Loaded for every
        job, a canary would be slower than the stable version that is compared with it.
        """
        head, model = checked.head, self._models.current()
        passed = head.name, head.version, model.codec
        if head.space == model.space and passed not in self._passed:
            model.heads.head_load(checked.folder)
            self._passed.add(passed)

    def _blame(self, name: str, version: str, detail: str) -> None:
        if (name, version) not in self._faults:
            self._faults[name, version] = detail
            _log.error("head %s %s cannot be served: %s", name, version, detail)

    def _read(self) -> Registry:
        """Return the registry, read again if its file changed and can be read."""
        path = self._folder / REGISTRY_NAME
        try:
            status = path.stat()
        except OSError:
            return self._registry
        stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
        if stamp != self._stamp:
            try:
                found = registry.read(self._folder)
            except ArtifactInvalid as error:
                _log.error("registry not read: %s", error.detail)
                return self._registry
            with self._lock:
                self._registry, self._stamp = found, stamp
                self._faults.clear()  # a folder may have been repaired
        return self._registry
