"""Addresses behind Sentinels: what they say, and how Celery writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from verso_core.settings import with_password
from verso_ledger.sentinel import celery_broker, sentinel_address


def test_an_address_names_sentinels_primary_and_database() -> None:
    found = sentinel_address("redis+sentinel://me:a%2Fb@one:1,two,[::1]:3/main/2?sentinel_auth=1")
    assert found is not None
    assert found.hosts == (("one", 1), ("two", 26379), ("::1", 3))
    assert (found.name, found.db, found.sentinel_auth) == ("main", 2, True)
    assert found.server_options == {"db": 2, "username": "me", "password": "a/b"}
    assert found.sentinel_options()["password"] == "a/b"


def test_sentinels_get_no_password_unless_the_address_says_so() -> None:
    found = sentinel_address("redis+sentinel://:secret@one:1/main")
    assert found is not None
    assert (found.db, found.server_options["password"]) == (0, "secret")
    assert "password" not in found.sentinel_options()


@pytest.mark.parametrize("url", ["redis://one:1/0", "unix:///run/ledger.sock", "rediss://one/0"])
def test_other_addresses_stay_as_they_are(url: str) -> None:
    assert sentinel_address(url) is None
    assert celery_broker(url) == (url, {})


@pytest.mark.parametrize("rest", ["", "one:1", "/main/0", "one:1/main/first", ":26379/main"])
def test_what_is_missing_is_refused_without_the_password(rest: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        sentinel_address(f"redis+sentinel://:secret@{rest}")
    assert "secret" not in str(caught.value)


def test_celery_gets_every_sentinel_and_the_name() -> None:
    url, options = celery_broker("redis+sentinel://:a%2Fb@one:1,two:2/main/1")
    assert url == "sentinel://:a%2Fb@one:1/1;sentinel://:a%2Fb@two:2/1"
    assert options["master_name"] == "main"


def test_a_password_from_a_file_goes_before_the_sentinels(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a/b\n")
    url = with_password("redis+sentinel://one:1,two:2/main/0", file)
    found = sentinel_address(url)
    assert found is not None
    assert (found.password, found.hosts) == ("a/b", (("one", 1), ("two", 2)))
