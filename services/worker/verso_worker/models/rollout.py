"""Follow the registry: take up new artifacts while serving, and reject those that fail.

1. The registry file is checked once a second; nothing else happens until it changes.
2. An artifact that a channel newly names is loaded in an engine of its own. It is served only if it
   passes its golden samples. A refused artifact is reported with the reason, and the artifact
   before it is still served. Additional ones serve the collections of their spaces.
3. A canary that is refused, that fails jobs (:mod:`verso_worker.models.canary`) or that is worse
   than the stable version (:mod:`verso_worker.models.comparison`) is withdrawn from the registry,
   so that no other worker takes it up.
4. Engines that nothing needs any more are stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from verso_core import registry
from verso_core.errors import ArtifactInvalid, ErrorBody, VersoError, error_body
from verso_core.registry import Channel, Registry, Rollout
from verso_worker.metrics import Metrics
from verso_worker.models.artifacts import ArtifactStore
from verso_worker.models.comparison import Comparisons
from verso_worker.rules.ports.models import Model

_EVERY_S = 1.0
_PUBLISH_S = 10.0
_RETRY_S = 10.0
_BRIEF = ("version", "task", "space", "error")
_log = logging.getLogger(__name__)


class Heads(Protocol):
    """The heads of a worker, which follow the registry by themselves."""

    def states(self) -> list[dict[str, Any]]:
        """Describe all heads: ``name``, and for each channel ``version`` and maybe ``error``.

        ``trial`` has the counts of a canary.
        """

    def review(self) -> None:
        """Report a canary that is worse than its stable version as one that cannot be served."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A served artifact, and the name it was published under."""

    name: str
    model: Model

    def public(self) -> dict[str, str | float]:
        model = self.model
        return {
            "name": self.name, "space": model.space, "codec": model.codec, "dim": model.dim,
            "int8_scale": model.int8_scale,
        }  # fmt: skip


class RegistryWatcher:
    """Keeps a worker's artifacts in step with the registry of a models folder.

    Args:
        models: folder with the registry.
        artifacts: the worker's artifacts.
        metrics: the worker's counters.
        publish: called with :meth:`state` whenever it changes, and every few seconds.
        heads: heads whose canaries are withdrawn if they cannot be served; None without heads.
        comparisons: compares the artifact's canary with the stable one; None compares nothing.
        retry_s: until what could not be read or loaded for now is tried again, seconds.
    """

    def __init__(
        self,
        models: Path,
        artifacts: ArtifactStore,
        metrics: Metrics,
        *,
        publish: Callable[[dict[str, Any]], None],
        heads: Heads | None = None,
        comparisons: Comparisons | None = None,
        retry_s: float = _RETRY_S,
    ) -> None:
        self._models = models
        self._artifacts = artifacts
        self._metrics = metrics
        self._publish = publish
        self._heads = heads
        self._comparisons = comparisons
        self._retry_s = retry_s
        self._seen: tuple[int, ...] | None = None
        self._again_at: float | None = None
        self._published: dict[str, Any] = {}
        self._published_at = 0.0
        self._swaps = 0
        self._registry = Registry()
        self._taken: dict[Channel, _Taken] = {}
        self._additional: dict[str, _Taken] = {}
        self._refused: dict[tuple[Channel | None, str], ErrorBody] = {}
        self._failed: tuple[str, str] | None = None
        self._trial: tuple[str, int, int] = ("", 0, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rollout", daemon=True)

    def open(self) -> None:
        """Load the stable artifact, or the one before it if that cannot be served.

        Raises:
            VersoError: there is no registry, or neither artifact can be served.
        """
        self._seen = self._stamp()
        self._follow()

    def start(self) -> None:
        """Follow the registry in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop following."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def step(self) -> None:
        """Take up changes, stop engines that are not needed, and publish the state if it is due."""
        stamp, now = self._stamp(), time.monotonic()
        changed = stamp != self._seen or (self._again_at is not None and now >= self._again_at)
        if changed:
            self._seen, self._again_at = stamp, None
            try:
                self._follow()
            except VersoError:
                self._again_at = now + self._retry_s  # a shared folder may not answer for now
                raise
        self._review()
        self._withdraw_heads()
        if self._failed is not None:
            changed = True
            self._take_back(*self._failed)
        self._artifacts.tidy()
        self._metrics.engines.set(len(self._artifacts.running()))
        state = self.state()  # heads are loaded by a thread of their own
        if changed or state != self._published or now - self._published_at >= _PUBLISH_S:
            self._published, self._published_at = state, now
            self._publish(state)

    def withdraw(self, codec: str, reason: str) -> None:
        """Request that a canary is withdrawn because it fails jobs; safe from any thread."""
        self._failed = (codec, reason)

    def tried(self, codec: str, passed: int, failed: int) -> None:
        """Note how many slices a canary has passed and failed; safe from any thread."""
        self._trial = (codec, passed, failed)

    def trial(self) -> str | None:
        """Return the name of the trial of the artifact's canary; None without one."""
        return self._registry.artifact.trial_of_canary

    def state(self) -> dict[str, Any]:
        """Describe what is served, what was refused and why."""
        known = self._registry.artifact
        canary, (codec, passed, failed) = self._taken.get(Channel.CANARY), self._trial
        own = canary is not None and canary.model.codec == codec
        return {
            "encoder": self._encoder(),
            "artifact": {
                "stable": self._public(Channel.STABLE),
                "canary": self._public(Channel.CANARY),
                "additional": [one.public() for one in self._additional.values()],
                "refused": [
                    {"channel": channel, "name": name, "error": error}
                    for (channel, name), error in self._refused.items()
                ],
                "trial": {"passed": passed, "failed": failed} if own else None,
                **_about(known),
            },
            "heads": [] if self._heads is None else [_brief(s) for s in self._heads.states()],
            "engines": len(self._artifacts.running()),
            "swaps": self._swaps,
        }

    def _encoder(self) -> dict[str, Any] | None:
        """Describe the stable artifact's encoder, and how it is run."""
        taken = self._taken.get(Channel.STABLE)
        if taken is None:
            return None
        model = taken.model
        own = {"dim": model.dim, "max_tokens": model.max_tokens, "pooling": model.pooling}
        return own | self._artifacts.encoder(model.codec)

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                self.step()
            except VersoError as error:
                _log.warning("registry not followed: %s", error.detail)
            except Exception:  # noqa: BLE001 - the artifacts are still served
                _log.exception("registry not followed")

    def _follow(self) -> None:
        """Serve what the registry names, as far as it can be served.

        Raises:
            VersoError: the registry cannot be read, or nothing can be served.
        """
        self._registry = registry.read(self._models)
        self._refused.clear()
        wanted = self._registry.artifact
        error = self._try(Channel.STABLE, wanted.stable)
        if error is not None and Channel.STABLE not in self._taken:
            # A worker that starts while the stable artifact is broken serves the one before it.
            if self._try(Channel.STABLE, wanted.previous) is not None or wanted.previous is None:
                raise error
            self._refused[Channel.STABLE, str(wanted.stable)] = error_body(error)
        canary = self._taken.get(Channel.CANARY)
        if canary is not None and canary.name != wanted.canary:
            del self._taken[Channel.CANARY]  # even if the next one cannot be loaded for now
        if wanted.canary is not None:
            self._try(Channel.CANARY, wanted.canary)
        self._take_additional(self._registry.additional)
        self._serve()

    def _review(self) -> None:
        """Find canaries that are worse than the stable version."""
        if self._comparisons is None:
            return
        known = [self._registry.artifact, *self._registry.heads.values()]
        self._comparisons.forget({one.trial_of_canary for one in known if one.trial_of_canary})
        trial, canary = self.trial(), self._taken.get(Channel.CANARY)
        if trial is not None and canary is not None:
            worse = self._comparisons.review(trial)
            if worse is not None:
                self.withdraw(canary.model.codec, worse.reason)
        if self._heads is not None:
            self._heads.review()

    def _withdraw_heads(self) -> None:
        """Withdraw the canaries of heads that cannot be served."""
        if self._heads is None or not any(r.canary for r in self._registry.heads.values()):
            return
        for state in self._heads.states():
            canary = state[Channel.CANARY] or {}
            if (error := canary.get("error")) is not None:
                _log.error("canary of head %s withdrawn: %s", state["name"], error["detail"])
                self._withdraw(canary["version"], error["detail"], head=state["name"])

    def _try(self, channel: Channel, name: str | None) -> VersoError | None:
        try:
            self._take(channel, registry.artifact_folder(self._models, name))
        except VersoError as error:
            self._refuse(channel, str(name), error)
            return error
        return None

    def _take_back(self, codec: str, reason: str) -> None:
        self._failed = None
        canary = self._taken.get(Channel.CANARY)
        if canary is not None and canary.model.codec == codec:
            _log.error("canary %s withdrawn: %s", canary.name, reason)
            del self._taken[Channel.CANARY]
            self._serve()
            self._withdraw(canary.name, reason)

    def _take_additional(self, names: Sequence[str]) -> None:
        """Load the artifacts that serve beside the stable one; one that fails serves no more."""
        taken: dict[str, _Taken] = {}
        for name in names:
            try:
                model = self._artifacts.load(registry.artifact_folder(self._models, name))
            except VersoError as error:
                self._refuse(None, name, error)
            else:
                taken[name] = _Taken(name, model)
        self._additional = taken

    def _take(self, channel: Channel, folder: Path) -> None:
        """Load the artifact that a channel names, unless the channel serves it already.

        Raises:
            VersoError: it cannot be served.
        """
        model = self._artifacts.load(folder)
        stable = self._taken.get(Channel.STABLE)
        if channel is Channel.CANARY and stable is not None and model.space != stable.model.space:
            raise ArtifactInvalid(
                f"expected a canary of space {stable.model.space}, got {model.space}: "
                "migrate the collections first"
            )
        before = self._taken.get(channel)
        self._taken[channel] = _Taken(folder.name, model)
        if before is None or before.model.codec != model.codec:
            self._swaps += 1
            self._metrics.swap("taken_up")
            _log.info("%s artifact is %s, codec %s", channel, folder.name, model.codec)

    def _refuse(self, channel: Channel | None, name: str, error: VersoError) -> None:
        _log.error("%s artifact %s refused: %s", channel or "additional", name, error.detail)
        self._metrics.swap("refused")
        self._refused[channel, name] = error_body(error)
        if error.retryable:
            self._again_at = time.monotonic() + self._retry_s
        elif channel is Channel.CANARY:
            self._taken.pop(Channel.CANARY, None)
            self._withdraw(name, error.detail)

    def _withdraw(self, name: str, reason: str, *, head: str | None = None) -> None:
        self._metrics.swap("withdrawn")
        try:
            self._registry = registry.withdraw(self._models, name, head=head, reason=reason)
        except (VersoError, OSError) as error:
            # The folder may be read-only here; this worker at least does not serve the canary.
            _log.warning("the registry still names %s: %s", name, error)

    def _serve(self) -> None:
        stable, canary = self._taken[Channel.STABLE], self._taken.get(Channel.CANARY)
        named = (*self._additional.values(), stable)
        self._artifacts.serve(
            stable.model.codec,
            canary=None if canary is None else canary.model.codec,
            share=self._registry.canary_share,
            by_name={one.name: one.model.codec for one in named},
        )

    def _public(self, channel: Channel) -> dict[str, str | float] | None:
        taken = self._taken.get(channel)
        return None if taken is None else taken.public()

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = (self._models / registry.REGISTRY_NAME).stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_ino, found.st_size)


def _about(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout's fields beside its channels."""
    return rollout.model_dump(mode="json", include={"share", "previous", "withdrawn"})


def _brief(state: dict[str, Any]) -> dict[str, Any]:
    """Return the versions and errors of a head's channels, and the counts of its canary."""
    channels = {
        channel.value: {k: v for k, v in (state[channel] or {}).items() if k in _BRIEF} or None
        for channel in Channel
    }
    return {"name": state["name"], "trial": state.get("trial")} | channels
