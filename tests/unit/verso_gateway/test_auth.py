"""Facts about callers and the guards on loopback and on cookies."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from verso_core.api_keys import Key, Scope, mint
from verso_core.errors import Forbidden, Unauthorized
from verso_gateway.auth import LOOK_S, Caller, Gate, KeysFile, check_same_origin


def _connection(method: str = "GET", **headers: str) -> HTTPConnection:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "method": method, "headers": pairs})


def _gate(key: str) -> Gate:
    keys = (Key(name="ops", digest=hashlib.sha256(key.encode()).digest()),)
    return Gate(lambda: keys)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_minted_key_is_admitted_under_its_name_however_it_is_sent(tmp_path: Path) -> None:
    key, made = mint("ops", scopes=[Scope.READ])
    path = tmp_path / "keys"
    path.write_text(made.line())
    gate = Gate(KeysFile(path))
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"authorization": f"ApiKey {key}"},
        {"authorization": f"ApiKey {_base64('any:' + key)}"},
        {"authorization": f"Basic {_base64('any:' + key)}"},
        {"x_api_key": key},
    ):
        assert gate.caller(_connection(**headers)) == Caller("ops", made)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer vk_wrong"},
        {"authorization": "Bearer "},
        {"authorization": "Basic vk_right"},
        {"authorization": "Basic " + _base64("vk_right:")},
        {"authorization": "Digest vk_right"},
        {"authorization": "ApiKey"},
        {"x_api_key": ""},
        {"x_api_key": "vk_\udcff".encode("utf-8", "surrogateescape").decode("latin-1")},
    ],
)
def test_anything_but_a_known_key_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthorized):
        _gate("vk_right").caller(_connection(**headers))


def test_an_expired_key_is_refused() -> None:
    key = Key("ops", hashlib.sha256(b"k").digest(), expires=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(Unauthorized, match="expired"):
        Gate(lambda: (key,)).caller(_connection(x_api_key="k"))


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080"])
def test_without_keys_this_machine_is_admitted(host: str) -> None:
    caller = Gate().caller(_connection(host=host))
    assert (caller.tenant, caller.owner) == ("default", None)
    assert all(map(caller.may, Scope))


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
        Gate().caller(_connection(**headers))


def test_keys_come_and_go_with_their_file_and_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    (old, old_key), (new, new_key) = mint("ops"), mint("ops")
    path.write_text(old_key.line() + "\n")
    now = [0.0]
    gate = Gate(KeysFile(path, clock=lambda: now[0]))

    def knows(key: str) -> bool:
        try:
            return gate.caller(_connection(authorization=f"Bearer {key}")).tenant == "ops"
        except Unauthorized:
            return False

    assert (knows(old), knows(new)) == (True, False)
    path.write_text(f"{old_key.line()}\n{new_key.line()}\n")  # both, so that a change has no gap
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
    path.write_text(f"{new_key.line()}\n# gone: {old_key.line()}\n")
    now[0] += LOOK_S
    assert (knows(old), knows(new)) == (False, True)
    path.write_text("# the last one is revoked\n")
    now[0] += LOOK_S
    assert (knows(old), knows(new)) == (False, False)


def test_keys_without_a_scope_are_warned_of_once_when_they_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{mint('old')[1].line()}\n{mint('new', scopes=[Scope.READ])[1].line()}\n")
    keys = KeysFile(path)
    keys()
    [record] = [r for r in caplog.records if "without scope" in r.message]
    assert record.__dict__["names"] == ["old"]


def _caller(*scopes: Scope, collections: tuple[str, ...] | None = None) -> Caller:
    return Caller("ann", Key("ann", b"", frozenset(scopes) or None, collections))


@pytest.mark.parametrize(
    ("caller", "seen"),
    [
        (_caller(Scope.READ), {"nobodys", "hers"}),
        (_caller(Scope.READ, collections=("theirs",)), {"theirs"}),
        (_caller(Scope.READ, collections=("none",)), set()),
        (_caller(Scope.ADMIN), {"nobodys", "hers", "theirs"}),
        (_caller(), {"nobodys", "hers", "theirs"}),  # from before there were scopes
        (Caller("default"), {"nobodys", "hers", "theirs"}),
    ],
)
def test_who_sees_whose_collections(caller: Caller, seen: set[str]) -> None:
    owners = {"nobodys": None, "hers": "ann", "theirs": "bob"}
    assert {name for name, owner in owners.items() if caller.sees(name, owner=owner)} == seen


def test_a_missing_scope_is_named() -> None:
    with pytest.raises(Forbidden, match="scope admin, this one has: read"):
        _caller(Scope.READ).check(Scope.ADMIN)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "same-origin", "origin": "https://verso.example"},
        {"origin": "https://verso.example"},
        {"origin": "http://verso.example"},  # behind a proxy with TLS
    ],
)
def test_a_page_of_this_origin_may_use_its_cookie(headers: dict[str, str]) -> None:
    check_same_origin(_connection("POST", host="verso.example", **headers))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "https://verso.example:8443"},
        {"sec_fetch_site": "same-site", "origin": "https://verso.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "none"},
    ],
)
def test_a_page_of_another_origin_may_not(headers: dict[str, str]) -> None:
    check_same_origin(_connection("GET", host="verso.example", **headers))
    with pytest.raises(Forbidden):
        check_same_origin(_connection("POST", host="verso.example", **headers))
