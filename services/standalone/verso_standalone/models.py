"""The models folder of a one-machine platform: what is shipped with it, and what was trained here.

    DIR/models/registry.json             which artifact and heads are served
    DIR/models/default -> .../default    shipped, a link: it follows the release that is installed
    DIR/models/heads/NAME/VERSION        shipped (a link) or trained here (a folder)

What was trained here and promoted stays; a channel that serves something shipped serves, after an
upgrade, what is shipped then. The worker keeps a copy of every artifact that wrote a record, so a
link that leads elsewhere one day loses nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from verso_core import registry
from verso_core.errors import ArtifactInvalid
from verso_core.registry import Channel, Registry


def adopt(artifact: Path, models: Path, *, pinned: bool) -> None:
    """Bring a platform's models folder up to date with what is shipped.

    Args:
        artifact: folder of the shipped artifact; a registry beside it names the shipped heads.
        models: the platform's own folder; made when missing.
        pinned: serve this artifact even where one that was trained here is stable.

    Raises:
        ArtifactInvalid: one of the two registries is not one.
    """
    models.mkdir(parents=True, exist_ok=True)
    known = registry.read(models) if (models / registry.REGISTRY_NAME).exists() else Registry()
    _link(models / artifact.name, artifact)
    if pinned or known.stable is None or not _own(models / known.stable):
        registry.assign(models, Channel.STABLE, artifact.name)
    shipped = artifact.parent
    if not (shipped / registry.REGISTRY_NAME).exists():
        return
    for name, rollout in registry.read(shipped).heads.items():
        if rollout.stable is None:
            continue
        place = models / registry.HEADS / name
        place.mkdir(parents=True, exist_ok=True)
        _link(place / rollout.stable, registry.head_folder(shipped, name, rollout.stable))
        serves = known.heads[name].stable if name in known.heads else None
        if serves is None or not _own(place / serves):
            registry.assign(models, Channel.STABLE, rollout.stable, head=name)


def artifact_of(models: Path) -> str:
    """Name the artifact that is served, for people."""
    with contextlib.suppress(ArtifactInvalid):
        return registry.read(models).stable or "-"
    return "-"


def _own(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def _link(place: Path, target: Path) -> None:
    target = target.resolve()
    if place.is_symlink():
        if place.resolve() == target:
            return
        place.unlink()
    if not place.exists():
        place.symlink_to(target, target_is_directory=True)
