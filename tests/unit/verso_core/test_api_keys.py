"""Facts about API keys and the file that holds their hashes."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from verso_core import api_keys
from verso_core.api_keys import Key, Scope, mint
from verso_core.errors import KeyUnknown

DIGEST = "0" * 64


def test_a_key_comes_back_from_its_line_as_it_was_made() -> None:
    end = datetime(2027, 1, 1, tzinfo=UTC)
    secret, key = mint("ops", scopes=[Scope.READ], collections=["logs", "web-*"], expires=end)
    assert api_keys.parse(f"# people\n\n{key.line()}  # night shift\n") == (key,)
    assert secret.startswith("vk_")
    assert secret not in key.line()
    assert key.id in key.line()


def test_a_line_from_before_there_were_scopes_may_do_everything() -> None:
    [key] = api_keys.parse(f"ops {DIGEST}")
    assert all(map(key.may, Scope))
    assert key.line() == f"ops {DIGEST}"


def test_admin_includes_the_other_scopes_and_no_other_does() -> None:
    assert all(map(Key("a", b"", frozenset({Scope.ADMIN})).may, Scope))
    assert not Key("a", b"", frozenset({Scope.INGEST})).may(Scope.READ)
    assert not Key("a", b"", frozenset({Scope.READ})).may(Scope.ADMIN)


def test_a_list_names_collections_or_their_beginnings() -> None:
    key = Key("a", b"", frozenset({Scope.READ}), ("logs", "web-*"))
    assert [key.lists(name) for name in ("logs", "web-1", "web", "logs2")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_key_expires_at_its_time() -> None:
    now = datetime.now(UTC)
    key = Key("a", b"", expires=now)
    assert key.expired(now)
    assert not key.expired(now - timedelta(seconds=1))


@pytest.mark.parametrize(
    "line",
    [
        "ops",
        "ops abc",
        f"o p s {DIGEST}",
        f"ops {DIGEST} scope=write",
        f"ops {DIGEST} scope=",
        f"ops {DIGEST} scope=read scope=admin",
        f"ops {DIGEST} rights=all",
        f"ops {DIGEST} read",
        f"ops {DIGEST} scope=read collections=",
        f"ops {DIGEST} scope=read collections=*x",
        f"ops {DIGEST} collections=logs",
        f"ops {DIGEST} scope=admin collections=logs",
        f"ops {DIGEST} expires=tomorrow",
        f"ops {DIGEST} expires=2027-01-01",
    ],
)
def test_a_broken_line_is_refused_by_its_number_and_not_quoted(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: expected") as caught:
        api_keys.parse(f"# a comment\n{line}\n")
    assert DIGEST not in str(caught.value)


def test_keys_are_added_and_revoked_and_other_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "new" / "api-keys"
    (_, first), (_, second), (_, third) = mint("a"), mint("b"), mint("b")
    for key in (first, second, third):
        api_keys.add(path, key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("# kept\n" + path.read_text())
    assert api_keys.revoke(path, second.id) == (second,)
    assert api_keys.read(path) == (first, third)
    assert api_keys.revoke(path, "b") == (third,)
    assert path.read_text() == f"# kept\n{first.line()}\n"
    with pytest.raises(KeyUnknown):
        api_keys.revoke(path, "b")
    with pytest.raises(KeyUnknown):
        api_keys.revoke(path, "")
    api_keys.revoke(path, "a")
    assert api_keys.read(path) == ()
    with pytest.raises(ValueError, match="at least one key"):
        api_keys.read_some(path)


def test_changes_at_once_are_all_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "keys"
    kept, gone = ([mint(f"{word}-{n}")[1] for n in range(20)] for word in ("kept", "gone"))
    for key in gone:
        api_keys.add(path, key)
    with ThreadPoolExecutor(8) as threads:
        added = [threads.submit(api_keys.add, path, key) for key in kept]
        revoked = [threads.submit(api_keys.revoke, path, key.name) for key in gone]
    assert not any(one.exception() for one in added)
    assert not any(one.exception() for one in revoked)
    assert set(api_keys.read(path)) == set(kept)


def test_a_file_that_is_no_file_of_keys_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"\xff not ours\n")
    with pytest.raises(ValueError, match="UTF-8"):
        api_keys.add(path, mint("a")[1])
    assert path.read_bytes() == b"\xff not ours\n"


def test_no_key_is_made_that_its_file_could_not_hold() -> None:
    with pytest.raises(ValueError, match="expected"):
        mint("two words")
    with pytest.raises(ValueError, match="collections"):
        mint("ops", scopes=[Scope.ADMIN], collections=["logs"])
