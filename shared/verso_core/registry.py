"""Which artifact each channel serves: one small JSON file beside the artifact folders.

    models/
      registry.json      {"stable": "default", "canary": null}
      default/           an artifact (:mod:`verso_core.manifest`)

A channel is switched by writing a new file and renaming it over the old one, so a reader always
sees one whole state. Folders are never changed once they are named here.
"""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path

from verso_core.errors import ArtifactInvalid

REGISTRY_NAME = "registry.json"


class Channel(StrEnum):
    """Who is served by an artifact: everyone, or a small share that tries a new one."""

    STABLE = "stable"
    CANARY = "canary"


def resolve(models: Path, channel: Channel = Channel.STABLE) -> Path:
    """Find the folder of the artifact that a channel serves.

    Raises:
        ArtifactInvalid: there is no readable registry, or the channel names no folder in it.
    """
    names = _read(models)
    name = names.get(channel)
    if not isinstance(name, str) or Path(name).name != name or not (models / name).is_dir():
        raise ArtifactInvalid(f"expected {channel} to name a folder of {models}, got {name!r}")
    return models / name


def assign(models: Path, channel: Channel, name: str | None) -> None:
    """Let a channel serve the artifact folder ``name``; None empties the channel."""
    names = _read(models) if (models / REGISTRY_NAME).exists() else {}
    names[channel] = name
    draft = models / f".{REGISTRY_NAME}.{os.getpid()}"
    with draft.open("w") as file:
        json.dump({c: names.get(c) for c in Channel}, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(models / REGISTRY_NAME)


def _read(models: Path) -> dict[str, str | None]:
    try:
        names = json.loads((models / REGISTRY_NAME).read_bytes())
    except OSError as exc:
        raise ArtifactInvalid(f"expected {models / REGISTRY_NAME}, got {exc.strerror}") from exc
    except ValueError as exc:
        raise ArtifactInvalid(f"expected JSON in {models / REGISTRY_NAME}") from exc
    if not isinstance(names, dict):
        raise ArtifactInvalid(f"expected an object in {models / REGISTRY_NAME}")
    return names
