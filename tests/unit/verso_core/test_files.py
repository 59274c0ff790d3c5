"""Files are replaced whole or not at all, and copied with their holes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core import files

_BLOCK = 4096


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    files.replace(path, b"one")
    files.replace(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_replacement_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        files.replace(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.replace(tmp_path / "none" / "file", b"new")


@given(st.lists(st.booleans(), max_size=6), st.integers(0, _BLOCK - 1))
def test_a_copy_has_the_bytes_of_the_file_and_takes_no_more_room(
    tmp_path_factory: pytest.TempPathFactory, written: list[bool], rest: int
) -> None:
    folder = tmp_path_factory.mktemp("sparse") / "one"
    folder.mkdir()
    with (folder / "file").open("wb") as file:
        for number, data in enumerate(written):
            if data:
                os.pwrite(file.fileno(), bytes([1 + number]) * _BLOCK, number * 16 * _BLOCK)
        file.truncate(len(written) * 16 * _BLOCK + rest)
        os.fsync(file.fileno())
    files.copy_tree(folder, folder.with_name("two"))
    files.sync(folder.with_name("two") / "file")
    copied = folder.with_name("two") / "file"
    assert copied.read_bytes() == (folder / "file").read_bytes()
    assert copied.stat().st_mode == (folder / "file").stat().st_mode
    assert files.used_bytes(folder.with_name("two")) <= files.used_bytes(folder)


def test_folders_that_come_and_go_do_not_disturb_the_count(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"a" * _BLOCK)
    over = threading.Event()

    def change() -> None:
        folder = tmp_path / "one" / "two"
        while not over.is_set():
            folder.mkdir(parents=True)
            folder.rmdir()
            folder.parent.rmdir()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        assert min(files.used_bytes(tmp_path) for _ in range(2000)) >= _BLOCK
    finally:
        over.set()
        thread.join()
