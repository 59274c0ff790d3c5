"""An artifact made here becomes the canary of a platform, or nothing changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from verso_core import manifest, registry
from verso_core.errors import ArtifactInvalid, RequestInvalid
from verso_standalone.models import add, adopt

ARTIFACT = Path(__file__).parents[2] / "data" / "artifact-tiny"


def test_it_is_copied_and_named_and_may_be_added_again(
    tmp_path: Path, variant: Callable[..., Path]
) -> None:
    models = tmp_path / "models"
    adopt(ARTIFACT, models, pinned=True)
    new = variant(tmp_path / "mine", 1)
    codec = add(new, models, share=0.5)
    assert (models / "mine" / "manifest.json").read_bytes() == (new / "manifest.json").read_bytes()
    rollout = registry.read(models).artifact
    assert (rollout.stable, rollout.canary, rollout.share) == (ARTIFACT.name, "mine", 0.5)
    assert add(new, models, share=1.0) == codec
    other = variant(tmp_path / "elsewhere" / "mine", 2)
    with pytest.raises(RequestInvalid, match="another artifact"):
        add(other, models, share=1.0)
    assert [path.name for path in models.iterdir() if path.name.startswith(".mine")] == []


def test_one_that_several_add_at_the_same_time_is_whole(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(ARTIFACT, mine)
    for number in range(3):
        models = tmp_path / f"models{number}"
        adopt(ARTIFACT, models, pinned=True)
        with ThreadPoolExecutor(8) as pool:
            added = [pool.submit(add, mine, models, share=0.5) for _ in range(8)]
            assert len({one.result() for one in added}) == 1
        assert manifest.load(models / "mine").manifest == manifest.load(mine).manifest
        assert {path.name for path in models.iterdir() if path.is_dir()} == {"mine", ARTIFACT.name}


def test_a_folder_without_a_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match="start it once"):
        add(ARTIFACT, tmp_path / "models", share=1.0)
    assert not (tmp_path / "models").exists()


def test_an_artifact_that_was_added_is_not_served_in_place_of_another_of_its_name(
    tmp_path: Path, variant: Callable[..., Path]
) -> None:
    models = tmp_path / "models"
    adopt(ARTIFACT, models, pinned=True)
    first = variant(tmp_path / "mine", 1)
    add(first, models, share=0.5)
    with pytest.raises(RequestInvalid, match="another artifact"):
        adopt(variant(tmp_path / "elsewhere" / "mine", 2), models, pinned=True)
    assert registry.read(models).stable == ARTIFACT.name
    adopt(first, models, pinned=True)
    assert registry.read(models).stable == "mine"
