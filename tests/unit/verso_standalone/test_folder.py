"""The data folder: its lock, its secret, its paths."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from verso_core.errors import RequestInvalid, Unavailable
from verso_standalone.folder import LONGEST_SOCKET_PATH, DataFolder
from verso_standalone.valkey import Valkey


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    made = DataFolder(tmp_path / "data")
    made.prepare()
    return made


def test_nobody_else_may_look_into_the_folder(folder: DataFolder) -> None:
    assert stat.S_IMODE(folder.root.stat().st_mode) == 0o700


def test_the_secret_is_made_once_and_kept_for_its_owner_only(folder: DataFolder) -> None:
    secret = folder.secret()
    assert len(secret) == 64
    assert folder.secret() == secret
    assert stat.S_IMODE((folder.root / "secret").stat().st_mode) == 0o600


def test_a_second_lock_is_refused_and_names_the_owner(folder: DataFolder) -> None:
    first = folder.lock()
    with pytest.raises(Unavailable, match=str(os.getpid())):
        folder.lock(wait_s=0.0)
    os.close(first)
    os.close(folder.lock(wait_s=0.0))


def test_sockets_lie_in_the_data_folder_when_its_path_is_short(tmp_path: Path) -> None:
    short = DataFolder(tmp_path / "d")
    short.prepare()
    if len(os.fsencode(short.root)) < LONGEST_SOCKET_PATH - 40:
        assert short.run_folder() == short.root / "run"


def test_sockets_get_a_short_path_of_their_own_when_the_data_folder_has_a_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    long = DataFolder(tmp_path / ("d" * 120))
    long.prepare()
    run = long.run_folder()
    assert len(os.fsencode(run)) < LONGEST_SOCKET_PATH - 30
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert long.run_folder() == run
    run.rmdir()


def test_sockets_elsewhere_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    long = DataFolder(tmp_path / ("d" * 120))
    run = long.run_folder()
    (run / "vectors.sock").touch()
    long.remove_far_run_folder()
    long.remove_far_run_folder()
    assert not run.exists()


@pytest.mark.parametrize(
    ("name", "read", "contents"),
    [
        ("valkey/valkey.conf", DataFolder.valkey_port, (b"", b"port", b"port x", b"\xff\0")),
        ("stores.json", DataFolder.stores, (b"", b"{", b"[]", b"\xff")),
    ],
)
def test_a_damaged_file_that_is_written_again_is_named(
    folder: DataFolder, name: str, read: Callable[[DataFolder], object], contents: tuple[bytes, ...]
) -> None:
    path = folder.root / name
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(RequestInvalid, match=rf"{path}.*`verso up` writes it again"):
            read(folder)


@pytest.mark.parametrize("content", [b"\xff", b"two words", b"a\nb", b"a/b@c", b"\0"])
def test_a_damaged_secret_is_named_and_not_shown(folder: DataFolder, content: bytes) -> None:
    path = folder.root / "secret"
    path.write_bytes(content)
    with pytest.raises(RequestInvalid, match=rf"password in {path}.*remove the file"):
        folder.secret()


@pytest.mark.parametrize("named", ["/no/such/folder", "", "relative"])
def test_sockets_lie_in_the_folder_of_temporary_files_where_the_users_own_is_missing(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", named)
    long = DataFolder(tmp_path / ("d" * 120))
    long.prepare()
    run = long.run_folder()
    assert run.parent == Path(tempfile.gettempdir())
    run.rmdir()


def test_a_folder_that_exists_keeps_its_mode_and_its_parts_are_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "notes").write_text("not ours")
    folder = DataFolder(tmp_path)
    folder.prepare()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    for part in (folder.valkey, folder.logs):
        assert stat.S_IMODE(part.stat().st_mode) == 0o700


def test_an_empty_secret_is_made_again(folder: DataFolder) -> None:
    (folder.root / "secret").touch()
    secret = folder.secret()
    assert len(secret) == 64
    assert folder.secret() == secret
    assert stat.S_IMODE((folder.root / "secret").stat().st_mode) == 0o600


def test_any_path_reaches_the_settings_of_valkey_byte_for_byte(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / os.fsdecode(b"d\xe4\nta"))
    folder.prepare()
    Valkey(Path("valkey-server"), folder.valkey, port=7, password="p").argv()
    assert rb"d\xe4\x0ata/valkey" in (folder.valkey / "valkey.conf").read_bytes()
    assert folder.valkey_port() == 7
