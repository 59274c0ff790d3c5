"""One flipped bit in any file of an artifact or a head, and it is not loaded.

The shipped ones and those of the tests, as they lie on the disk, through the loaders that every
worker uses. Of a manifest each bit is flipped; of other files bits at fixed places of header,
middle and tail.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from verso_core import heads, manifest
from verso_core.errors import ArtifactInvalid

ROOT = Path(__file__).parents[3]
ARTIFACTS = [ROOT / "tests/data/artifact-tiny", ROOT / "models/default"]
HEADS = sorted(
    path.parent
    for folder in ("models/heads", "tests/data/heads-tiny/heads")
    for path in (ROOT / folder).rglob(heads.HEAD_NAME)
)
FOLDERS = [
    pytest.param(folder, load, id="/".join(folder.relative_to(ROOT).parts[-2:]))
    for folders, load in ((ARTIFACTS, manifest.load), (HEADS, heads.load))
    for folder in folders
]
_LARGE = 1 << 20
_EDGE = 64
"""Bytes of header and tail in which bits are flipped first."""


def flips(size: int, *, each: int) -> Iterator[tuple[int, int]]:
    """Yield bytes and their bits: ``each`` of the header, the middle and the tail."""
    rng = random.Random(size)
    for first, last in ((0, min(size, _EDGE)), (0, size), (max(0, size - _EDGE), size)):
        for _ in range(each):
            yield rng.randrange(first, last), rng.randrange(8)


class Flipping:
    """A folder with the files of another, by links but for one, in which bits can be flipped."""

    def __init__(self, source: Path, folder: Path, name: str, *, alone: bool = False) -> None:
        folder.mkdir()
        for path in source.iterdir():
            if path.name != name and not alone:
                (folder / path.name).symlink_to(path)
        self.folder = folder
        self._data = (source / name).read_bytes()
        self._path = folder / name
        self._path.write_bytes(self._data)

    @contextmanager
    def flipped(self, at: int, bit: int) -> Iterator[None]:
        self._write(at, self._data[at] ^ 1 << bit)
        yield
        self._write(at, self._data[at])

    def _write(self, at: int, byte: int) -> None:
        with self._path.open("r+b", buffering=0) as file:
            file.seek(at)
            file.write(bytes([byte]))


@pytest.mark.parametrize(("source", "load"), FOLDERS)
def test_a_flipped_bit_in_any_file_is_found(
    source: Path, load: Callable[[Path], Any], tmp_path: Path
) -> None:
    load(source)
    total = sum(path.stat().st_size for path in source.iterdir())
    for path in sorted(source.iterdir()):
        altered = Flipping(source, tmp_path / path.name, path.name)
        for at, bit in flips(path.stat().st_size, each=2 if total > _LARGE else 10):
            with altered.flipped(at, bit), pytest.raises(ArtifactInvalid):
                load(altered.folder)
        load(altered.folder)


@pytest.mark.parametrize(("source", "load"), FOLDERS)
def test_flipped_bits_of_a_manifest_are_found(
    source: Path, load: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Every one of the smallest; of the others one in every fifth byte."""
    [name] = {manifest.MANIFEST_NAME, heads.HEAD_NAME} & {path.name for path in source.iterdir()}
    altered = Flipping(source, tmp_path / "alone", name, alone=True)
    step = 1 if source is ARTIFACTS[0] else 5
    for at in range(0, (source / name).stat().st_size, step):
        for bit in range(8) if source is ARTIFACTS[0] else [at % 8]:
            with altered.flipped(at, bit), pytest.raises(ArtifactInvalid, match=name):
                load(altered.folder)
