"""The platform's own Valkey: set up to lose nothing, closed to strangers."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from verso_core.errors import Unavailable
from verso_core.supervise import Process
from verso_ledger.epoch import Epoch, EpochState
from verso_standalone.backup import ledger_state
from verso_standalone.folder import DataFolder
from verso_standalone.valkey import Valkey, find_program, free_port


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Valkey, Process]]:
    try:
        program = find_program()
    except Unavailable:
        if os.environ.get("CI"):
            raise
        pytest.skip("no Valkey server on this machine")
    folder = DataFolder(tmp_path / 'a "quoted" folder')
    folder.prepare()
    valkey = Valkey(program, folder.valkey, port=free_port(), password=folder.secret())
    process = Process("valkey", valkey.argv(), log_path=folder.log_path("valkey"), environment={})
    process.start()
    wait(valkey)
    yield valkey, process
    process.stop(grace_s=10.0)


def wait(valkey: Valkey) -> None:
    deadline = time.monotonic() + 60
    while not valkey.answers():
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
    deadline = time.monotonic() + 60
    while process.restarts == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    wait(valkey)
    with redis.Redis.from_url(valkey.url(0)) as client:
        assert client.dbsize() == 200


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
