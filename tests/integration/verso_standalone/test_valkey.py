"""The platform's own Valkey: set up to lose nothing, closed to strangers."""

from __future__ import annotations

import os
import re
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from verso_core.errors import RequestInvalid, Unavailable
from verso_core.supervise import Process
from verso_ledger.epoch import Epoch, EpochState
from verso_standalone.backup import ledger_state
from verso_standalone.folder import DataFolder
from verso_standalone.valkey import (
    AOF_FOLDER,
    AOF_MANIFEST,
    Valkey,
    drop_unwritten,
    find_program,
    free_port,
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Valkey, Process]]:
    try:
        program = find_program()
    except Unavailable:
        if os.environ.get("CI"):
            raise
        pytest.skip("no Valkey server on this machine")
    folder = DataFolder(tmp_path / os.fsdecode(b'a "quoted" \\folder\n\xff'))
    folder.prepare()
    valkey = Valkey(program, folder.valkey, port=free_port(), password=folder.secret())
    process = Process("valkey", valkey.argv(), log_path=folder.log_path("valkey"), environment={})
    process.start()
    wait(valkey)
    yield valkey, process
    process.stop(grace_s=10.0)


def wait(valkey: Valkey) -> None:
    until(valkey.answers)


def until(asked: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not asked():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_its_settings_lose_nothing(running: tuple[Valkey, Process]) -> None:
    valkey, _ = running
    with redis.Redis.from_url(valkey.url(0)) as client:
        settings = client.config_get("*")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["hash-max-listpack-value"] == "1024"
    assert settings["bind"] == "127.0.0.1"


def test_a_stranger_is_not_let_in(running: tuple[Valkey, Process]) -> None:
    valkey, _ = running
    with (
        redis.Redis(port=valkey.port) as client,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        client.ping()


def test_the_password_is_in_no_command_line(running: tuple[Valkey, Process]) -> None:
    valkey, process = running
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    assert valkey.password.encode() not in command
    assert stat.S_IMODE((valkey.folder / "valkey.conf").stat().st_mode) == 0o600


def test_what_it_acknowledged_survives_sigkill(running: tuple[Valkey, Process]) -> None:
    valkey, process = running
    with redis.Redis.from_url(valkey.url(0)) as client:
        for number in range(200):
            client.set(f"key{number}", number)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.restarts > 0)
    wait(valkey)
    with redis.Redis.from_url(valkey.url(0)) as client:
        assert client.dbsize() == 200


@pytest.mark.parametrize("written", ["whole commands", "half a command", "nothing"])
def test_it_starts_on_bytes_that_a_power_cut_left_unwritten(
    running: tuple[Valkey, Process], written: str, caplog: pytest.LogCaptureFixture
) -> None:
    valkey, process = running
    with redis.Redis.from_url(valkey.url(0)) as client:
        client.set("acknowledged", b"ends in \0\0")
        if written == "nothing":  # in a new file
            client.bgrewriteaof()
            until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    process.stop(grace_s=10.0)
    [file] = (valkey.folder / AOF_FOLDER).glob("*.incr.aof")
    before = file.read_bytes()
    assert (before == b"") is (written == "nothing")
    torn = b"*3\r\n$3\r\nSET\r\n$4\r\nlost" if written == "half a command" else b""
    file.write_bytes(before + torn + bytes(100_000))
    again = Process("valkey", valkey.argv(), log_path=process.log_path, environment={})
    again.start()
    try:
        wait(valkey)
        with redis.Redis.from_url(valkey.url(0)) as client:
            assert client.keys() == [b"acknowledged"]
            assert client.get("acknowledged") == b"ends in \0\0"
    finally:
        again.stop(grace_s=10.0)
    assert f"100000 bytes of {file.name} were never written" in caplog.text
    assert file.read_bytes() == before  # the server has cut half a command off


def test_a_file_whose_commands_are_whole_is_left_alone(tmp_path: Path) -> None:
    assert drop_unwritten(tmp_path) == 0  # no server was ever started there
    folder = tmp_path / AOF_FOLDER
    folder.mkdir()
    (folder / AOF_MANIFEST).write_text("file base seq 1 type b\nfile a seq 1 type i\n")
    (folder / "base").write_bytes(bytes(10))
    (folder / "a").write_bytes(b"*1\r\n$4\r\nPI\0\0\r\n")
    assert drop_unwritten(tmp_path) == 0
    assert (folder / "a").read_bytes() == b"*1\r\n$4\r\nPI\0\0\r\n"
    assert (folder / "base").read_bytes() == bytes(10)


@pytest.mark.parametrize("how", ["removed", "emptied"])
@pytest.mark.parametrize("part", [AOF_MANIFEST, "*.base.rdb", "*.incr.aof"])
def test_a_part_of_the_append_only_file_that_is_missing_is_named(
    running: tuple[Valkey, Process], part: str, how: str
) -> None:
    valkey, process = running
    with redis.Redis.from_url(valkey.url(0)) as client:
        client.set("acknowledged", bytes(range(100)))
        client.bgrewriteaof()
        until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
    process.stop(grace_s=10.0)
    valkey.argv()
    [path] = (valkey.folder / AOF_FOLDER).glob(part)
    others = {one: one.read_bytes() for one in path.parent.iterdir() if one != path}
    path.unlink()
    if how == "emptied":
        path.touch()
    if (part, how) == ("*.incr.aof", "emptied"):  # as after each rewrite
        valkey.argv()
    else:
        with pytest.raises(RequestInvalid, match=re.escape(f"{path.name}, which is missing")):
            valkey.argv()
    assert {one: one.read_bytes() for one in others} == others


def test_a_first_start_that_was_cut_off_is_made_again(running: tuple[Valkey, Process]) -> None:
    valkey, process = running
    process.stop(grace_s=10.0)
    manifest = valkey.folder / AOF_FOLDER / AOF_MANIFEST
    manifest.unlink()
    again = Process("valkey", valkey.argv(), log_path=process.log_path, environment={})
    again.start()
    try:
        wait(valkey)
        assert manifest.is_file()
    finally:
        again.stop(grace_s=10.0)


def test_a_read_only_ledger_is_told_of_and_trusted_while_it_runs_and_while_it_does_not(
    running: tuple[Valkey, Process],
) -> None:
    valkey, process = running
    data = valkey.folder.parent
    assert ledger_state(data, trust=True) == (ledger_state(data, trust=False)[0], False)
    with closing(Epoch.from_url(valkey.url(0))) as guard:
        guard.make_read_only(EpochState("lost", "", 41))
    said, read_only = ledger_state(data, trust=False)
    assert read_only
    assert "had reached 41 of epoch lost" in said
    process.stop(grace_s=10.0)
    assert ledger_state(data, trust=False)[1]
    said, read_only = ledger_state(data, trust=True)
    assert not read_only
    assert said.startswith("continues in a new epoch")


def test_a_folder_without_a_platform_has_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="expected the data folder"):
        ledger_state(tmp_path, trust=True)
