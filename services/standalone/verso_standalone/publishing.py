"""The command `verso models add`: an artifact that was made here, tried by a running platform."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verso_client.cli.terminal import failures_reported
from verso_core import manifest, registry
from verso_core.errors import ArtifactInvalid, RequestInvalid
from verso_core.registry import SHARE, Channel
from verso_standalone.folder import DataFolder


def add_model(
    artifact: Annotated[Path, typer.Argument(help="Folder of the artifact.")],
    data: Annotated[Path, typer.Option(help="Data folder of the platform.")] = Path("verso-data"),
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the jobs that try it first.")
    ] = SHARE,
) -> None:
    """Copy an artifact to a platform as its canary; `verso models promote` makes it stable."""
    with failures_reported():
        codec = add(artifact, DataFolder(data.resolve()).models, share=share)
    console = Console()
    console.print(f"{artifact.name} (codec {codec}) is the canary", highlight=False)
    console.print("next: verso models list, then verso models promote", highlight=False)


def add(artifact: Path, models: Path, *, share: float) -> str:
    """Copy an artifact into a models folder, let it be the canary, and give its codec's id.

    Raises:
        ArtifactInvalid: one of the two folders is not what it should be.
        RequestInvalid: the artifact has another space than what serves, or its name is taken.
        DiskFull: the registry could not be written.
    """
    new = manifest.load(artifact).manifest
    if not (models / registry.REGISTRY_NAME).is_file():
        raise ArtifactInvalid(f"expected the models of a platform in {models}; start it once")
    if new.space.id != manifest.load(registry.resolve(models)).manifest.space.id:
        raise RequestInvalid(
            f"expected an artifact of the space that serves, got {new.space.id}; "
            "start the platform with it and migrate"
        )
    place = models / artifact.name
    if not place.exists():
        draft = models / f".{artifact.name}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(artifact, draft)
        draft.rename(place)
    elif manifest.load(place).manifest.codec.id != new.codec.id:
        raise RequestInvalid(f"expected a name of its own, but {place} is another artifact")
    registry.assign(models, Channel.CANARY, artifact.name, share=share)
    return new.codec.id
