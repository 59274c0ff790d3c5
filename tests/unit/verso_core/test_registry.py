"""A channel names one artifact folder, or is a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from verso_core.errors import ArtifactInvalid
from verso_core.registry import REGISTRY_NAME, Channel, assign, resolve


def test_a_channel_resolves_to_what_was_assigned(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assign(tmp_path, Channel.STABLE, "one")
    assign(tmp_path, Channel.CANARY, "two")
    assert resolve(tmp_path) == tmp_path / "one"
    assert resolve(tmp_path, Channel.CANARY) == tmp_path / "two"
    assign(tmp_path, Channel.CANARY, None)
    with pytest.raises(ArtifactInvalid, match="canary"):
        resolve(tmp_path, Channel.CANARY)


@pytest.mark.parametrize("content", ["", "[]", '{"stable": "missing"}', '{"stable": "../x"}'])
def test_a_registry_that_names_no_folder_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / REGISTRY_NAME).write_text(content)
    with pytest.raises(ArtifactInvalid):
        resolve(tmp_path)


def test_no_registry_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match=REGISTRY_NAME):
        resolve(tmp_path)
