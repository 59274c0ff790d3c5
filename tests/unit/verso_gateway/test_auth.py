"""Facts about API keys and the guard on loopback."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from verso_core.errors import Unauthorized
from verso_gateway.auth import LOOK_S, Gate, Key, KeysFile, mint, read_keys


def _connection(**headers: str) -> HTTPConnection:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": pairs})


def _gate(key: str) -> Gate:
    keys = (Key(name="ops", digest=hashlib.sha256(key.encode()).digest()),)
    return Gate(lambda: keys)


def test_a_minted_key_is_admitted_under_its_name(tmp_path: Path) -> None:
    key, line = mint("ops")
    path = tmp_path / "keys"
    path.write_text(f"# people\n\n{line}  # night shift\n")
    gate = Gate(KeysFile(path))
    assert key.startswith("vk_")
    assert key not in path.read_text()
    assert gate.tenant(_connection(authorization=f"Bearer {key}")) == "ops"
    assert gate.tenant(_connection(x_api_key=key)) == "ops"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer vk_wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Basic vk_right"},
        {"x_api_key": ""},
        {"x_api_key": "vk_\udcff".encode("utf-8", "surrogateescape").decode("latin-1")},
    ],
)
def test_anything_but_a_known_key_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        _gate("vk_right").tenant(_connection(**headers))


@pytest.mark.parametrize("text", ["", "ops", "ops abc", "o p s " + "0" * 64])
def test_a_broken_keys_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ValueError, match="expected"):
        read_keys(path)


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080"])
def test_without_keys_this_machine_is_admitted(host: str) -> None:
    assert Gate().tenant(_connection(host=host)) == "default"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "["},
        {},
        {"host": "localhost", "origin": "https://evil.example"},
        {"host": "localhost", "origin": "null"},
    ],
)
def test_without_keys_a_web_page_of_another_site_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        Gate().tenant(_connection(**headers))


def test_keys_come_and_go_with_their_file_and_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    (old, old_line), (new, new_line) = mint("ops"), mint("ops")
    path.write_text(old_line + "\n")
    now = [0.0]
    gate = Gate(KeysFile(path, clock=lambda: now[0]))

    def knows(key: str) -> bool:
        try:
            return gate.tenant(_connection(authorization=f"Bearer {key}")) == "ops"
        except Unauthorized:
            return False

    assert (knows(old), knows(new)) == (True, False)
    path.write_text(f"{old_line}\n{new_line}\n")  # both, so that a change has no gap
    assert not knows(new)
    now[0] += LOOK_S
    assert (knows(old), knows(new)) == (True, True)
    path.write_text("not a key\n")
    now[0] += LOOK_S
    assert (knows(old), knows(new)) == (True, True)
    assert "line 1" in caplog.text
    path.unlink()
    now[0] += LOOK_S
    assert knows(new)
    path.write_text(f"{new_line}\n# gone: {old_line}\n")
    now[0] += LOOK_S
    assert (knows(old), knows(new)) == (False, True)
