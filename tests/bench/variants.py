"""Artifacts of one space that differ in nothing but their names, for tests and benches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from verso_core import manifest

ARTIFACT = Path(__file__).parents[1] / "data" / "artifact-tiny"


def make_variant(folder: Path, number: int, *, source: Path = ARTIFACT) -> Path:
    """Write an artifact that differs from another in its codec's id and in nothing else.

    A note at the end of the decoder's file (field 6 of ONNX's ModelProto, ``doc_string``) changes
    its hash and none of its numbers.
    """
    shutil.copytree(source, folder)
    note = f"variant {number}".encode()
    with (folder / "decoder.onnx").open("ab") as graph:
        graph.write(b"\x32" + bytes([len(note)]) + note)
    content = json.loads((folder / manifest.MANIFEST_NAME).read_bytes())
    content["files"]["decoder.onnx"] = manifest.describe(folder / "decoder.onnx").model_dump()
    parsed = manifest.Manifest.model_validate(content)
    content["codec"]["id"] = manifest.codec_id(parsed.codec, parsed.files)
    manifest.write(manifest.Manifest.model_validate(content), folder)
    return folder
