"""Which version of each head is served: the registry's if it is valid, else the last valid one.

The registry is read again whenever its file changes. A version that was published, promoted or
rolled back therefore serves from the next job on, without a restart. A version that cannot be
served is reported in :meth:`HeadStore.states` and in the log, and the version before it is served.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from verso_core import heads, registry
from verso_core.errors import ArtifactInvalid, EngineUnavailable, HeadInvalid, HeadUnknown
from verso_core.heads import CARD, SIGNALS, Head, Task
from verso_core.registry import REGISTRY_NAME, Channel, Registry, Rollout, channel_of
from verso_worker.models import canary as trials
from verso_worker.records.confidence import Statistics
from verso_worker.rules.ports import Models, ServedHead

T = TypeVar("T")
_EVERY_S = 1.0
_FIRST_S = 30.0
_DESCRIBED = {"version", "created", "task", "reads", "space", "labels", "none_label", "chunk"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A version whose files match their hashes."""

    head: Head
    folder: Path
    statistics: Statistics | None


class HeadStore:
    """Holds a worker's heads; implements :class:`verso_worker.rules.ports.Heads`.

    Args:
        folder: the models folder, which holds the registry and the heads' folders.
        models: the artifacts whose encoders the heads read.
        on_compared: called with a head's name and the numbers of subjects on which its canary and
            the stable version agreed and differed.
    """

    def __init__(
        self,
        folder: Path,
        models: Models,
        *,
        on_compared: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._folder = folder
        self._models = models
        self._on_compared = on_compared
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._registry = Registry()
        self._checked: dict[tuple[str, str], _Checked] = {}
        self._faults: dict[tuple[str, str], str] = {}
        self._good: dict[str, str] = {}
        self._trials: dict[tuple[str, str], Counter[bool]] = {}
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

        Raises:
            HeadUnknown: there is no head of this name, or it does another task.
            HeadInvalid: its folder is invalid, and no earlier version was served.
        """
        rollout = self._read().rollout(name)
        channel = Channel.STABLE
        if job is not None and rollout.canary is not None:
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

    def run_job(self, names: Sequence[str], call: Callable[[str | None], T], *, job: str) -> T:
        """Run a job with the heads that its id chooses; if a canary fails it, without canaries."""
        return trials.run_job(self, names, call, job=job)

    def canary(self, name: str, job: str) -> str | None:
        """Return the canary's version if the job is of its share, else None."""
        rollout = self._read().rollout(name)
        version = rollout.canary
        if version is None or (name, version) in self._faults:
            return None
        return version if channel_of(job, rollout.share) is Channel.CANARY else None

    def tried(self, name: str, version: str, error: BaseException | None) -> None:
        """Count a job that a canary ran; ``error`` is None if it succeeded.

        A canary that fails too often is reported as one that cannot be served; the
        :class:`~verso_worker.models.rollout.RegistryWatcher` then withdraws it.
        """
        with self._lock:
            counts = self._trials.setdefault((name, version), Counter())
            counts[error is None] += 1
            passed, failed = counts[True], counts[False]
        if error is not None and (reason := trials.verdict(passed, failed, error)) is not None:
            self._blame(name, version, reason)

    def rival(self, canary: ServedHead) -> ServedHead | None:
        """Return the stable version to compare a canary with.

        None if there is nothing to compare: no stable version, one that cannot be served, or one
        with other inputs.
        """
        name = canary.head.name
        if self._on_compared is None or canary.channel is not Channel.CANARY:
            return None
        try:
            rollout = self._read().rollout(name)
            if rollout.stable is None:
                return None
            stable, _ = self._choose(name, rollout, Channel.STABLE)
        except ArtifactInvalid:
            return None
        head = stable.head
        inputs = ("task", "reads", "chunk", "space")
        if any(getattr(head, one) != getattr(canary.head, one) for one in inputs):
            return None
        return ServedHead(head, stable.folder, Channel.STABLE, canary.model, stable.statistics)

    def compared(self, canary: ServedHead, *, agreed: int, differed: int) -> None:
        """Report on how many subjects a canary and its rival agreed and differed."""
        if self._on_compared is not None:
            self._on_compared(canary.head.name, agreed, differed)

    def refresh(self) -> None:
        """Load what the registry names, so that the first job of a new version does not wait."""
        for name, rollout in self._read().heads.items():
            for channel in Channel:
                version = rollout.serves(channel)
                if version is None or (name, version) in self._faults:
                    continue
                try:
                    checked = self._check(name, version)
                    if checked.head.space == self._models.current().space:
                        self._models.current().heads.head_load(checked.folder)
                except ArtifactInvalid as error:
                    self._blame(name, version, error.detail)
                except EngineUnavailable as error:
                    _log.warning("head %s not loaded, engine unavailable: %s", name, error.detail)

    def states(self) -> list[dict[str, Any]]:
        """Describe all heads, by name: the version and the abilities of each channel."""
        found = []
        for name, rollout in sorted(self._read().heads.items()):
            state: dict[str, Any] = {"name": name, "share": rollout.share}
            for channel in Channel:
                version = rollout.serves(channel)
                state[channel.value] = None if version is None else self._about(name, version)
            found.append(state)
        return found

    def report(self, name: str, channel: Channel) -> tuple[str, bytes]:
        """Return the version of a channel and its card: Markdown, UTF-8.

        Raises:
            HeadUnknown: the channel serves no head of this name.
            HeadInvalid: its folder is invalid.
        """
        version = self._read().rollout(name).serves(channel)
        if version is None:
            raise HeadUnknown(f"no {channel} version of head {name!r}")
        folder = registry.head_folder(self._folder, name, version)
        return version, heads.load(folder).data[CARD]

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
        """Let the engine check a version that has not been served yet."""
        head = checked.head
        if self._good.get(head.name) == head.version:
            return
        model = self._models.current()
        if head.space == model.space:
            model.heads.head_load(checked.folder)

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
