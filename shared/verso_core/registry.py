"""Which artifact and which version of each head every channel serves: one small JSON file.

    models/
      registry.json        {"stable": "default", "canary": null, "canary_share": 0.1,
                            "heads": {"intents": {"stable": "9f…", "canary": null, "share": 0.1}},
                            "tasks": {"relevance": "pairs"}}
      default/             an artifact (:mod:`verso_core.manifest`)
      heads/intents/9f…/   a version of a head (:mod:`verso_core.heads`)

The file is changed under a lock beside it, by renaming a new file over the old one, so a reader
always sees a whole state and no change is lost. A folder that is named here never changes.
``additional`` artifacts, of other spaces, serve the collections that were made with them.
``previous`` is what a rollback restores, ``withdrawn`` the last canary that was withdrawn.

    assign(canary) ──> a share of the jobs ──> promote: canary -> stable, stable -> previous
                                          └──> withdraw / rollback: canary -> withdrawn
    rollback without a canary: stable <-> previous
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from verso_core import files
from verso_core.errors import ArtifactInvalid, DiskFull, HeadUnknown, RequestInvalid

REGISTRY_NAME = "registry.json"
HEADS = "heads"
TASKS = {"similarity": "alike", "duplicate": "alike", "relevance": "pairs"}
"""The heads that score a task if the registry names none: a cosine is symmetric, as alikeness is; a
reader of pairs is not, as an answer does not ask."""
SHARE = 0.1
_LOCK_NAME = ".registry.lock"
_REMEMBERED = 16  # tokens of changes; a repeated request has one of the newest


class Channel(StrEnum):
    """Which jobs an artifact or head serves: all, or the share of them that tries a new one."""

    STABLE = "stable"
    CANARY = "canary"


class Measure(StrEnum):
    """What a canary may be worse in than the stable version."""

    AGREEMENT = "agreement"
    SCORE = "score"
    LATENCY = "latency"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Withdrawn(_Model):
    """A canary that was withdrawn, by an operator or because it failed."""

    version: str
    reason: str
    time: datetime


class Rollout(_Model):
    """What the channels of one head, or of the artifact itself, serve."""

    stable: str | None = None
    canary: str | None = None
    share: float = Field(default=SHARE, ge=0, le=1, description="share of the canary's jobs")
    previous: str | None = None
    withdrawn: Withdrawn | None = None
    trial: str | None = Field(
        default=None, description="what the canary's sums are kept under, new with each trial"
    )

    @property
    def trial_of_canary(self) -> str | None:
        """Return the name of the canary's trial; by its version where it was assigned before."""
        return None if self.canary is None else self.trial or self.canary

    def serves(self, channel: Channel) -> str | None:
        """Return what a channel serves."""
        return self.stable if channel is Channel.STABLE else self.canary


class Registry(_Model):
    """The content of ``registry.json``; a file from before there were heads is read as well."""

    stable: str | None = None
    canary: str | None = None
    canary_share: float = Field(default=SHARE, ge=0, le=1)
    previous: str | None = None
    withdrawn: Withdrawn | None = None
    canary_trial: str | None = None
    additional: tuple[str, ...] = Field(default=(), description="artifacts of other spaces")
    heads: dict[str, Rollout] = Field(default_factory=dict)
    tasks: dict[str, str] = Field(
        default_factory=lambda: dict(TASKS),
        description="names of tasks that stand for a head, unless a head has the name",
    )
    changes: tuple[str, ...] = Field(default=(), description="tokens of the newest changes")

    @property
    def artifact(self) -> Rollout:
        """Return the artifact's rollout."""
        return Rollout(
            stable=self.stable,
            canary=self.canary,
            share=self.canary_share,
            previous=self.previous,
            withdrawn=self.withdrawn,
            trial=self.canary_trial,
        )

    def head_of(self, name: str) -> str:
        """Return the head that a name stands for: its own, or the one of a task."""
        return name if name in self.heads else self.tasks.get(name, name)

    def rollout(self, head: str | None) -> Rollout:
        """Return the rollout of a head, or of the artifact where ``head`` is None.

        Raises:
            HeadUnknown: there is no head of this name.
        """
        if head is None:
            return self.artifact
        if head not in self.heads:
            raise HeadUnknown(f"no head {head!r}; there are {sorted(self.heads)}")
        return self.heads[head]

    def with_rollout(self, head: str | None, new: Rollout) -> Registry:
        """Return the registry with the rollout of a head, or of the artifact, replaced."""
        if head is not None:
            return self.model_copy(update={"heads": {**self.heads, head: new}})
        return self.model_copy(
            update={
                "stable": new.stable,
                "canary": new.canary,
                "canary_share": new.share,
                "previous": new.previous,
                "withdrawn": new.withdrawn,
                "canary_trial": new.trial,
            }
        )


def read(models: Path) -> Registry:
    """Read the registry of a models folder.

    Raises:
        ArtifactInvalid: the file is missing or malformed.
    """
    path = models / REGISTRY_NAME
    try:
        return Registry.model_validate_json(path.read_bytes())
    except OSError as exc:
        raise ArtifactInvalid(f"expected {path}, got {exc.strerror}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ArtifactInvalid(f"{path}: {where}: {first['msg']}") from exc


def resolve(models: Path, channel: Channel = Channel.STABLE) -> Path:
    """Find the folder of the artifact that a channel serves.

    Raises:
        ArtifactInvalid: there is no readable registry, or the channel names no folder in it.
    """
    return _folder(models, read(models).artifact.serves(channel), what=channel)


def artifact_folder(models: Path, name: str | None) -> Path:
    """Find the folder of an artifact.

    Raises:
        ArtifactInvalid: there is no such folder.
    """
    return _folder(models, name, what="the registry")


def head(models: Path, name: str, channel: Channel = Channel.STABLE) -> Path:
    """Find the folder of the version of a head that a channel serves.

    Raises:
        HeadUnknown: there is no head of this name, or the channel serves none.
        ArtifactInvalid: there is no readable registry, or it names no folder.
    """
    version = read(models).rollout(name).serves(channel)
    if version is None:
        raise HeadUnknown(f"no {channel} version of head {name!r}")
    return head_folder(models, name, version)


def head_folder(models: Path, name: str, version: str) -> Path:
    """Find the folder of one version of a head.

    Raises:
        ArtifactInvalid: there is no such folder.
    """
    if Path(name).name != name:
        raise ArtifactInvalid(f"expected a plain name of a head, got {name!r}")
    return _folder(models / HEADS / name, version, what=f"head {name}")


def channel_of(job_id: str, share: float) -> Channel:
    """Return the channel of a job, the same in every process.

    Args:
        job_id: any string.
        share: part of all jobs that the canary serves, in [0, 1].
    """
    digest = hashlib.blake2b(job_id.encode(), digest_size=8).digest()
    return Channel.CANARY if int.from_bytes(digest) < share * 2**64 else Channel.STABLE


def assign(
    models: Path,
    channel: Channel,
    name: str | None,
    *,
    head: str | None = None,
    share: float | None = None,
) -> Registry:
    """Let a channel serve an artifact folder, or a version of ``head``; None empties the channel.

    A stable one that is replaced becomes ``previous``. A missing registry is created.

    Raises:
        ArtifactInvalid: there is no such folder, or the registry is malformed.
        DiskFull: the registry could not be written; the old one stays.
    """
    if name is not None:
        _check_folder(models, name, head)

    def change(old: Rollout) -> Rollout:
        update: dict[str, Any] = {} if share is None else {"share": share}
        if channel is Channel.CANARY:
            if name != old.canary:
                update["trial"] = None if name is None else uuid.uuid4().hex[:16]
            return old.model_copy(update={**update, "canary": name})
        update |= {"stable": name}
        if old.stable not in (None, name):
            update["previous"] = old.stable
        return old.model_copy(update=update)

    return _change(models, head, change)


def promote(models: Path, *, head: str | None = None, token: str | None = None) -> Registry:
    """Make the canary stable; a rollback restores what was stable.

    A call with the ``token`` of a recent change does nothing: the change is not made twice.

    Raises:
        RequestInvalid: there is no canary.
        HeadUnknown: there is no head of this name.
    """

    def change(old: Rollout) -> Rollout:
        if old.canary is None:
            raise RequestInvalid(f"expected a canary of {_name(head)}, got none")
        update = {"stable": old.canary, "canary": None, "previous": old.stable, "trial": None}
        return old.model_copy(update=update)

    return _change(models, head, change, must_exist=True, token=token)


def rollback(
    models: Path, *, head: str | None = None, reason: str = "asked for", token: str | None = None
) -> Registry:
    """Withdraw the canary, or if there is none restore what was stable before.

    ``token`` as for :func:`promote`: a second rollback would undo the first.

    Raises:
        ArtifactInvalid: the earlier one's folder is not there any more; nothing changes.
        RequestInvalid: there is neither a canary nor an earlier stable one.
        HeadUnknown: there is no head of this name.
    """

    def change(old: Rollout) -> Rollout:
        if old.canary is not None:
            return _without_canary(old, reason)
        if old.previous is None:
            raise RequestInvalid(f"expected an earlier stable version of {_name(head)}, got none")
        _check_folder(models, old.previous, head)
        return old.model_copy(update={"stable": old.previous, "previous": old.stable})

    return _change(models, head, change, must_exist=True, token=token)


def withdraw(models: Path, version: str, *, head: str | None = None, reason: str) -> Registry:
    """Withdraw a canary that failed, unless it is no longer the canary."""

    def change(old: Rollout) -> Rollout:
        return _without_canary(old, reason) if old.canary == version else old

    return _change(models, head, change, must_exist=True)


def set_additional(models: Path, name: str, *, serves: bool) -> Registry:
    """Let an artifact serve beside the stable one, or no longer.

    Raises:
        ArtifactInvalid: there is no such folder, or the registry is missing or malformed.
        DiskFull: the registry could not be written; the old one stays.
    """
    if serves:
        artifact_folder(models, name)
    with _locked(models):
        old = read(models)
        others = tuple(one for one in old.additional if one != name)
        new = old.model_copy(update={"additional": (*others, name) if serves else others})
        if new != old:
            _write(models, new)
        return new


def _without_canary(old: Rollout, reason: str) -> Rollout:
    assert old.canary is not None
    gone = Withdrawn(version=old.canary, reason=reason, time=datetime.now(UTC))
    return old.model_copy(update={"canary": None, "withdrawn": gone, "trial": None})


def _change(
    models: Path,
    head: str | None,
    change: Callable[[Rollout], Rollout],
    *,
    must_exist: bool = False,
    token: str | None = None,
) -> Registry:
    with _locked(models):
        old = read(models) if must_exist or (models / REGISTRY_NAME).exists() else Registry()
        if token in old.changes:
            return old
        known = old.rollout(head) if must_exist or head in (None, *old.heads) else Rollout()
        new = old.with_rollout(head, change(known))
        if token is not None:
            new = new.model_copy(update={"changes": (*old.changes, token)[-_REMEMBERED:]})
        if new != old:
            _write(models, new)
        return new


@contextmanager
def _locked(models: Path) -> Iterator[None]:
    """Keep other processes of this machine from changing the registry."""
    descriptor = os.open(models / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(models: Path, registry: Registry) -> None:
    content = registry.model_dump(mode="json", exclude_defaults=True)
    # These two are written even if unset: other programs read them.
    content = {"stable": registry.stable, "canary": registry.canary, **content}
    try:
        files.replace(models / REGISTRY_NAME, (json.dumps(content, indent=2) + "\n").encode())
    except OSError as exc:
        raise DiskFull(f"{models / REGISTRY_NAME} cannot be written: {exc.strerror}") from exc


def _check_folder(models: Path, name: str, head: str | None) -> None:
    _ = artifact_folder(models, name) if head is None else head_folder(models, head, name)


def _folder(parent: Path, name: str | None, *, what: str) -> Path:
    if name is None or Path(name).name != name or not (parent / name).is_dir():
        raise ArtifactInvalid(f"expected {what} to name a folder of {parent}, got {name!r}")
    return parent / name


def _name(head: str | None) -> str:
    return "the artifact" if head is None else f"head {head!r}"
