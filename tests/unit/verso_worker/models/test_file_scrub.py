"""Files that rot under a running worker: found, mended from a sound copy, counted."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest

from verso_worker.models.file_scrub import FileScrub

DATA = Path(__file__).parents[3] / "data"
ARTIFACT = DATA / "artifact-tiny"
HEADS = DATA / "heads-tiny"
FAST = 1e12


class Tally:
    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.corrupt = -1

    def file_read(self, status: str) -> None:
        self.files[status] += 1

    def files_corrupt(self, count: int) -> None:
        self.corrupt = count


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    shutil.copytree(ARTIFACT, tmp_path / "data/artifacts/one")
    (tmp_path / "data/artifacts/.draft").mkdir()
    (tmp_path / "data/artifacts/.draft/manifest.json").write_text("{")
    return tmp_path / "data/artifacts"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    shutil.copytree(ARTIFACT, tmp_path / "models/default")
    shutil.copytree(HEADS / "heads", tmp_path / "models/heads")
    return tmp_path / "models"


def look(own: Path, foreign: Path | None = None) -> tuple[list[Path], Tally]:
    tally = Tally()
    others = [] if foreign is None else [foreign]
    return FileScrub([own], others, counts=tally, every_s=1.0, pace=FAST).run_pass(), tally


def test_sound_files_of_artifacts_and_heads_are_counted(own: Path, foreign: Path) -> None:
    corrupt, tally = look(own, foreign)
    assert (corrupt, tally.corrupt) == ([], 0)
    assert set(tally.files) == {"sound"}
    assert tally.files["sound"] > 2 * 10


def test_a_corrupt_file_is_mended_from_another_folder(own: Path, foreign: Path) -> None:
    flip(own / "one/decoder.onnx")
    corrupt, tally = look(own, foreign)
    assert (corrupt, tally.files["mended"]) == ([], 1)
    assert (own / "one/decoder.onnx").read_bytes() == (ARTIFACT / "decoder.onnx").read_bytes()
    assert look(own, foreign)[1].files["mended"] == 0


def test_a_missing_file_is_mended_as_well(own: Path, foreign: Path) -> None:
    (own / "one/zstd.dict").unlink()
    assert look(own, foreign)[1].files["mended"] == 1
    assert (own / "one/zstd.dict").read_bytes() == (ARTIFACT / "zstd.dict").read_bytes()


def test_without_a_sound_copy_it_is_corrupt_and_left(own: Path, foreign: Path) -> None:
    flip(own / "one/encoder.onnx")
    flip(foreign / "default/encoder.onnx")
    damaged = (own / "one/encoder.onnx").read_bytes()
    corrupt, tally = look(own, foreign)
    assert corrupt == [own / "one/encoder.onnx", foreign / "default/encoder.onnx"]
    assert (tally.corrupt, tally.files["corrupt"]) == (2, 2)
    assert (own / "one/encoder.onnx").read_bytes() == damaged


def test_a_file_in_the_folder_of_models_is_named_and_not_written(own: Path, foreign: Path) -> None:
    [head, *_] = sorted(foreign.rglob("head.onnx"))
    flip(head)
    damaged = head.read_bytes()
    assert look(own, foreign)[0] == [head]
    assert head.read_bytes() == damaged


@pytest.mark.parametrize("name", ["manifest.json", "head.json"])
def test_a_damaged_manifest_is_a_corrupt_folder(own: Path, foreign: Path, name: str) -> None:
    [path, *_] = sorted(foreign.rglob(name))
    flip(path)
    corrupt, tally = look(own, foreign)
    assert (corrupt, tally.corrupt) == ([path.parent], 1)


def test_a_pass_is_over_when_it_is_told_to_stop(own: Path) -> None:
    scrub = FileScrub([own], [], counts=Tally(), every_s=3600.0)
    before = set(threading.enumerate())
    scrub.start()
    assert set(threading.enumerate()) > before
    scrub.stop()
    assert set(threading.enumerate()) <= before
