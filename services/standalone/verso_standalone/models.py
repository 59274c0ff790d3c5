"""The models folder of a one-machine platform: shipped models, and those that were trained here.

    DIR/models/registry.json             which artifact and heads are served
    DIR/models/default -> .../default    shipped: a link to the installed release
    DIR/models/heads/NAME/VERSION        shipped (a link) or trained here (a folder)

A model that was trained here and promoted stays. A channel that serves a shipped model serves the
new release's model after an upgrade. The worker keeps a copy of every artifact that wrote a record,
so nothing is lost when a link's target changes.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import uuid
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verso_client.cli.terminal import failures_reported
from verso_core import files, manifest, registry
from verso_core.errors import ArtifactInvalid, DiskFull, RequestInvalid
from verso_core.manifest import Manifest
from verso_core.registry import SHARE, Channel, Registry
from verso_standalone.folder import DataFolder


def adopt(artifact: Path, models: Path, *, pinned: bool) -> None:
    """Bring a platform's models folder up to date with the shipped models.

    Args:
        artifact: folder of the shipped artifact; a registry beside it names the shipped heads.
        models: the platform's own folder; created if it is missing.
        pinned: serve this artifact even if one that was trained here is stable.

    Raises:
        ArtifactInvalid: one of the two registries is invalid.
        RequestInvalid: an artifact that was added here has the name of the one to serve.
    """
    models.mkdir(parents=True, exist_ok=True)
    known = registry.read(models) if (models / registry.REGISTRY_NAME).exists() else Registry()
    _link(models / artifact.name, artifact)
    if pinned or known.stable is None or not _own(models / known.stable):
        if _own(models / artifact.name):
            _check_same(models / artifact.name, manifest.read(artifact))
        registry.assign(models, Channel.STABLE, artifact.name)
    shipped = artifact.parent
    if not (shipped / registry.REGISTRY_NAME).exists():
        return
    for name, rollout in registry.read(shipped).heads.items():
        if rollout.stable is None:
            continue
        head = models / registry.HEADS / name
        head.mkdir(parents=True, exist_ok=True)
        _link(head / rollout.stable, registry.head_folder(shipped, name, rollout.stable))
        serves = known.heads[name].stable if name in known.heads else None
        if serves is None or not _own(head / serves):
            registry.assign(models, Channel.STABLE, rollout.stable, head=name)


def artifact_of(models: Path) -> str:
    """Return the name of the stable artifact, or ``-``."""
    with contextlib.suppress(ArtifactInvalid):
        return registry.read(models).stable or "-"
    return "-"


def _own(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def _check_same(folder: Path, new: Manifest) -> None:
    """Check that a folder with an artifact's name holds that artifact."""
    known = manifest.read(folder)
    if (known.space.id, known.codec.id) != (new.space.id, new.codec.id):
        raise RequestInvalid(f"expected a name of its own, but {folder} is another artifact")


def _link(link: Path, target: Path) -> None:
    target = target.resolve()
    if link.is_symlink():
        if link.resolve() == target:
            return
        link.unlink()
    if not link.exists():
        link.symlink_to(target, target_is_directory=True)


def add_model(
    artifact: Annotated[Path, typer.Argument(help="Folder of the artifact.")],
    data: Annotated[Path, typer.Option(help="Data folder of the platform.")] = Path("verso-data"),
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the jobs that try it first.")
    ] = SHARE,
) -> None:
    """Copy an artifact to a platform.

    One of the space that serves becomes the canary, which `verso models promote` makes stable. One
    of another space serves beside the stable one, for the collections that name it.
    """
    with failures_reported():
        models = DataFolder(data.resolve()).models
        own = has_space_of(artifact, models)
        codec = add(artifact, models, share=share if own else None)
    console = Console()
    name = artifact.name
    console.print(
        f"{name} (codec {codec}) {'is the canary' if own else 'serves beside the stable one'}",
        highlight=False,
    )
    following = "models promote" if own else f"collections create NAME --artifact {name}"
    console.print(f"next: verso models list, then verso {following}", highlight=False)


def drop_model(
    name: Annotated[str, typer.Argument(help="Name of an artifact that serves beside the stable.")],
    data: Annotated[Path, typer.Option(help="Data folder of the platform.")] = Path("verso-data"),
) -> None:
    """Let an artifact serve no longer beside the stable one; its records are still read."""
    with failures_reported():
        registry.set_additional(DataFolder(data.resolve()).models, name, serves=False)


def has_space_of(artifact: Path, models: Path) -> bool:
    """Whether an artifact is of the space of the stable one of a models folder.

    Raises:
        ArtifactInvalid: one of the two folders holds no valid artifact or registry.
    """
    if not (models / registry.REGISTRY_NAME).is_file():
        raise ArtifactInvalid(f"expected the models of a platform in {models}; start it once")
    stable = manifest.read(registry.resolve(models)).space
    return manifest.read(artifact).space.id == stable.id


def add(artifact: Path, models: Path, *, share: float | None) -> str:
    """Copy an artifact into a models folder; make it the canary, or let it serve beside.

    Args:
        artifact: its folder.
        models: the platform's own folder.
        share: of the canary's jobs; None lets it serve beside the stable one.

    Returns:
        The id of the artifact's codec.

    Raises:
        ArtifactInvalid: one of the two folders holds no valid artifact or registry.
        RequestInvalid: the canary is of another space than the stable one, or the name is taken.
        DiskFull: the artifact or the registry could not be written.
    """
    new = manifest.load(artifact).manifest
    if share is not None and not has_space_of(artifact, models):
        raise RequestInvalid(f"expected a canary of the space that serves, got {new.space.id}")
    folder = models / artifact.name
    if not folder.exists():
        _copy(artifact, folder)
    manifest.load(folder)
    _check_same(folder, new)
    if share is None:
        registry.set_additional(models, artifact.name, serves=True)
    else:
        registry.assign(models, Channel.CANARY, artifact.name, share=share)
    return new.codec.id


def _copy(artifact: Path, folder: Path) -> None:
    """Copy an artifact into a new folder, whole or not at all; another caller may do the same."""
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}")
    try:
        shutil.copytree(artifact, draft)
        for path in (*draft.rglob("*"), draft):
            files.sync(path)
        draft.rename(folder)
        files.sync(folder.parent)
    except OSError as exc:
        if exc.errno in (errno.EEXIST, errno.ENOTEMPTY):  # the other one was first
            return
        raise DiskFull(f"{folder} cannot be written: {exc.strerror or 'copy failed'}") from exc
    finally:
        shutil.rmtree(draft, ignore_errors=True)
