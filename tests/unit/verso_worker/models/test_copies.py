"""A worker's copies of artifacts: whole ones are used, what is being written or removed is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from verso_core.errors import EngineUnavailable
from verso_core.manifest import load
from verso_worker.models.copies import ArtifactCopies

ARTIFACT = Path(__file__).parents[3] / "data" / "artifact-tiny"


def test_a_copy_that_a_killed_worker_left_in_part_is_not_used(tmp_path: Path) -> None:
    artifact = load(ARTIFACT)
    copies = ArtifactCopies(tmp_path)
    kept = copies.add(artifact).folder
    left = kept.with_name(f".{artifact.id}.another.1")
    kept.rename(left)
    (left / "decoder.onnx").unlink()
    with pytest.raises(EngineUnavailable):
        copies.folder(artifact.manifest.codec.id)
    assert copies.add(artifact).folder == copies.folder(artifact.manifest.codec.id) == kept
