"""Large results in files: what goes in comes out, and anything else is an error that says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.errors import DiskFull, LedgerUnavailable, ResultLost, ResultsUnavailable
from verso_core.result_files import SHARDS, ResultFiles, is_reference

JOB, OTHER = "ab" + "0" * 30, "ab" + "1" * 30
FRAME = b"\x56" + bytes(range(256)) * 8


def only_file(folder: Path) -> Path:
    [path] = [path for path in folder.rglob("*") if path.is_file()]
    return path


@given(body=st.binary(max_size=300), inline_bytes=st.integers(0, 300), number=st.integers(0, 10**6))
def test_a_result_comes_back_from_wherever_it_was_kept(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, inline_bytes: int, number: int
) -> None:
    frame = b"\x56" + body
    files = ResultFiles(tmp_path_factory.mktemp("results"), inline_bytes=inline_bytes)
    held = files.keep(JOB, number, frame)
    assert is_reference(held) == (len(frame) > inline_bytes)
    assert files.read(JOB, number, held) == frame


def test_a_folder_that_was_never_named_keeps_everything_in_the_ledger() -> None:
    assert ResultFiles(None, inline_bytes=0).keep(JOB, 0, FRAME) == FRAME


def test_the_same_result_again_is_the_same_file(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path, inline_bytes=0)
    assert files.keep(JOB, 3, FRAME) == files.keep(JOB, 3, FRAME)
    assert only_file(tmp_path).parent == tmp_path / "ab" / JOB


@pytest.mark.parametrize(
    "harm", ["gone", "shorter", "one bit", "of another slice", "cut reference"]
)
def test_what_is_not_what_was_written_is_no_result(tmp_path: Path, harm: str) -> None:
    files = ResultFiles(tmp_path, inline_bytes=0)
    held, number = files.keep(JOB, 0, FRAME), 0
    path = only_file(tmp_path)
    match harm:
        case "gone":
            path.unlink()
        case "shorter":
            path.write_bytes(FRAME[:-1])
        case "one bit":
            path.write_bytes(FRAME[:-1] + bytes([FRAME[-1] ^ 1]))
        case "of another slice":
            number = 1
        case "cut reference":
            held = held[:-1]
    with pytest.raises(ResultLost):
        files.read(JOB, number, held)


def test_a_folder_that_is_away_is_waited_for(tmp_path: Path) -> None:
    held = ResultFiles(tmp_path / "there", inline_bytes=0).keep(JOB, 0, FRAME)
    for folder in (tmp_path / "elsewhere", None):
        with pytest.raises(ResultsUnavailable):
            ResultFiles(folder).read(JOB, 0, held)
    (tmp_path / "a file").touch()
    with pytest.raises(ResultsUnavailable):
        ResultFiles(tmp_path / "a file", inline_bytes=0).keep(JOB, 0, FRAME)


def test_nothing_is_written_that_would_take_the_disk_below_its_floor(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path, inline_bytes=0, floor_bytes=1 << 60)
    with pytest.raises(DiskFull):
        files.keep(JOB, 0, FRAME)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_sweep_removes_what_the_ledger_knows_no_more_and_nothing_else(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path, inline_bytes=0)
    kept = files.keep(JOB, 0, FRAME)
    files.keep(OTHER, 0, FRAME)
    files.keep(OTHER, 1, FRAME)

    def known(jobs: Sequence[str]) -> set[str]:
        return {JOB} & set(jobs)

    assert sum(files.sweep(shard, known) for shard in SHARDS) == 1
    assert files.read(JOB, 0, kept) == FRAME
    assert only_file(tmp_path).parent.name == JOB


def test_a_ledger_that_does_not_answer_costs_no_result(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path, inline_bytes=0)
    held = files.keep(JOB, 0, FRAME)

    def known(_jobs: Sequence[str]) -> set[str]:
        raise LedgerUnavailable("away")

    with pytest.raises(LedgerUnavailable):
        files.sweep("ab", known)
    assert files.read(JOB, 0, held) == FRAME
