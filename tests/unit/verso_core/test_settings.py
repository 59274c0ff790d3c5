"""Facts about passwords that are handed over as files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from redis.connection import parse_url

from verso_core.errors import RequestInvalid
from verso_core.settings import LedgerSettings, read_settings, with_password
from verso_worker.settings import WorkerSettings


@given(
    password=st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Z"]), min_size=1)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize(
    "url", ["redis://ledger:6379/0", "redis://me:old@ledger:6379/0", "rediss://me@ledger/0"]
)
def test_a_client_reads_back_the_password(url: str, password: str, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(password + "\n")
    read = parse_url(with_password(url, path))  # type: ignore[no-untyped-call]
    plain = parse_url(url)  # type: ignore[no-untyped-call]
    assert read["password"] == password
    assert read["host"] == "ledger"
    assert read["db"] == 0
    assert read.get("username") == plain.get("username")


def test_a_socket_takes_a_password_too(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret")
    read = parse_url(with_password("unix:///run/ledger.sock?db=1", path))  # type: ignore[no-untyped-call]
    assert (read["password"], read["path"], read["db"]) == ("secret", "/run/ledger.sock", 1)


def test_several_hosts_keep_their_order_and_their_brackets(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("a/b")
    url = "redis+sentinel://me:old@one:1,[::1]:3/main/2?sentinel_auth=1"
    assert with_password(url, path) == url.replace("old", "a%2Fb")


def test_without_a_file_the_address_stays_as_it_is() -> None:
    assert with_password("redis://ledger:6379/0", None) == "redis://ledger:6379/0"


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_file_without_a_password_is_named_and_nothing_else(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=str(path)) as caught:
        with_password("redis://:hidden@ledger:6379/0", path)
    assert "hidden" not in str(caught.value)


def test_ledgers_have_names_and_the_home_ledger_comes_first(tmp_path: Path) -> None:
    """Spaces stand between them: an address of Sentinels has commas."""
    secret = tmp_path / "password"
    secret.write_text("pw")
    found = LedgerSettings(
        redis_url="redis://a:6379/0",
        redis_password_file=secret,
        ledgers="b=redis://b:6379/0\n c2=redis+sentinel://s:26379,t:26379/c2/0",
    )
    assert found.ledger_addresses == (
        ("home", "redis://:pw@a:6379/0"),
        ("b", "redis://:pw@b:6379/0"),
        ("c2", "redis+sentinel://:pw@s:26379,t:26379/c2/0"),
    )
    assert LedgerSettings().ledger_addresses == (("home", "redis://127.0.0.1:6379/0"),)


@pytest.mark.parametrize(
    "ledgers",
    [
        "b", "b=", "=redis://b/0", "B=redis://b/0", "b-c=redis://b/0", "home=redis://b/0",
        "b=redis://b/0 b=redis://c/0", "1=redis://b/0", "a" * 17 + "=redis://b",
    ],
)  # fmt: skip
def test_a_ledger_without_a_name_of_its_own_is_refused(ledgers: str) -> None:
    with pytest.raises(ValidationError):
        LedgerSettings(ledgers=ledgers)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "abc",
        "http://ledger",
        "redis://:se/cret@ledger:6379/0",
        "redis://ledger:65536",
        "redis://ledger:0",
    ],
)
def test_an_address_that_no_client_takes_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(RequestInvalid, match="VERSO_REDIS_URL: ") as caught:
        read_settings(LedgerSettings, redis_url=url)
    assert "'se'" not in str(caught.value)
    assert "cret" not in str(caught.value)


def test_an_empty_path_is_not_the_working_directory() -> None:
    with pytest.raises(RequestInvalid, match=r"VERSO_REDIS_PASSWORD_FILE: .*expected a path"):
        read_settings(LedgerSettings, redis_password_file="")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("lease_s", text) for text in ("1e30", "1000000001", "1e-9")),
        *(("cold_after_days", "1e30"), ("text_cache_mib", str(1 << 60))),
        *(("ledger_replicas", str(10**30)), ("qdrant_read_consistency", str(1 << 60))),
    ],
)
def test_a_number_that_nothing_can_count_with_is_refused(name: str, value: str) -> None:
    with pytest.raises(RequestInvalid, match=f"VERSO_{name.upper()}.*: .*expected at "):
        read_settings(WorkerSettings, **{name: value})


def test_large_numbers_of_every_unit_are_taken() -> None:
    given = {"lease_s": "1e9", "cold_after_days": "10000", "idle_listen_s": "0"}
    assert read_settings(WorkerSettings, **given).lease_s == 1e9
