"""An artifact loads whole and unaltered, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from verso_core.errors import ArtifactInvalid
from verso_core.manifest import (
    CODEC_FILES,
    MANIFEST_NAME,
    OTHER_FILES,
    SPACE_FILES,
    Codec,
    Manifest,
    Profile,
    Space,
    Tolerance,
    codec_id,
    describe,
    load,
    space_id,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artifact whose files hold no graphs: only their hashes matter here."""
    for name in (*SPACE_FILES, *CODEC_FILES, *OTHER_FILES):
        (tmp_path / name).write_bytes(f"content of {name}".encode())
    names = (*SPACE_FILES, *CODEC_FILES, *OTHER_FILES)
    files = {name: describe(tmp_path / name) for name in names}
    space = Space(id="", dim=4, max_encoder_tokens=8, pooling="mean", int8_scale=100.0)
    codec = Codec(
        id="",
        vocab=512,
        bos=510,
        eos=511,
        layers=1,
        kv_heads=1,
        head_dim=8,
        width=8,
        slots=2,
        max_tokens=16,
        epsilon=0.004,
        confidence_epsilon=0.004,
        profile=Profile(onnxruntime="1.31.1", optimisation="basic"),
    )
    manifest = Manifest(
        format=1,
        name="test",
        created=datetime(2026, 1, 1, tzinfo=UTC),
        space=space.model_copy(update={"id": space_id(space, files)}),
        codec=codec.model_copy(update={"id": codec_id(codec, files)}),
        tolerance=Tolerance(vector_cosine=0.999),
        files=files,
    )
    (tmp_path / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return tmp_path


def test_an_unaltered_artifact_loads(folder: Path) -> None:
    artifact = load(folder)
    assert artifact.data["ngram.npz"] == b"content of ngram.npz"
    assert artifact.id == f"{artifact.manifest.space.id}-{artifact.manifest.codec.id}"


@pytest.mark.parametrize("name", [*SPACE_FILES, *CODEC_FILES, *OTHER_FILES])
def test_one_flipped_bit_is_named(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[3] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ArtifactInvalid, match=name):
        load(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "zstd.dict").unlink()
    with pytest.raises(ArtifactInvalid, match=r"zstd\.dict"):
        load(folder)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactInvalid, match=r"manifest\.json"):
        load(tmp_path / "nothing")


def _set_format(manifest: dict[str, object]) -> None:
    manifest["format"] = 2


def _rename_space(manifest: dict[str, dict[str, object]]) -> None:
    manifest["space"]["id"] = "0" * 16


def _forget_file(manifest: dict[str, dict[str, object]]) -> None:
    del manifest["files"]["ranks.npz"]


def _leave_folder(manifest: dict[str, dict[str, object]]) -> None:
    manifest["files"]["../secret"] = manifest["files"]["ranks.npz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set_format, "format"),
        (_rename_space, "space id"),
        (_forget_file, "ranks.npz"),
        (_leave_folder, "plain file names"),
    ],
)
def test_a_manifest_that_contradicts_its_files_is_refused(
    folder: Path, change: Callable[[dict[str, object]], None], message: str
) -> None:
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    change(manifest)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    with pytest.raises(ArtifactInvalid, match=message):
        load(folder)


def test_a_manifest_that_is_no_json_is_refused(folder: Path) -> None:
    (folder / MANIFEST_NAME).write_text("{")
    with pytest.raises(ArtifactInvalid, match=r"manifest\.json"):
        load(folder)
