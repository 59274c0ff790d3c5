"""`verso keys`: making, listing and revoking keys in a file."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from verso_client.cli.keys import keys_app
from verso_core import api_keys
from verso_core.api_keys import Scope


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "api-keys"


def run(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(keys_app, [*arguments, "--data", str(path.parent)])


def test_a_new_key_is_printed_alone_and_its_file_holds_its_hash(path: Path) -> None:
    done = run(path, "new", "ops")
    secret = done.stdout.strip()
    [key] = api_keys.read(path)
    assert done.exit_code == 0
    assert key.digest == hashlib.sha256(secret.encode()).digest()
    assert key.scopes == frozenset({Scope.INGEST, Scope.READ})
    assert secret not in path.read_text() + done.stderr
    assert "after a restart" in done.stderr


def test_scopes_collections_and_an_end_are_as_asked(path: Path) -> None:
    done = run(
        path, "new", "shipper", "--scope", "ingest", "--scope", "read",
        "--collection", "logs", "--collection", "web-*", "--expires", "90d",
    )  # fmt: skip
    [key] = api_keys.read(path)
    assert done.exit_code == 0, done.stderr
    assert key.collections == ("logs", "web-*")
    assert key.expires is not None
    assert abs(key.expires - datetime.now(UTC) - timedelta(days=90)) < timedelta(minutes=1)
    run(path, "new", "other", "--expires", "2027-01-01T00:00:00+01:00")
    assert api_keys.read(path)[1].expires == datetime(2026, 12, 31, 23, tzinfo=UTC)


@pytest.mark.parametrize(
    "arguments",
    [
        ["two words"],
        ["ops", "--expires", "soon"],
        ["ops", "--expires", "yesterday"],
        ["ops", "--scope", "admin", "--collection", "a"],
    ],
)
def test_what_no_key_can_be_is_refused_and_changes_nothing(
    path: Path, arguments: list[str]
) -> None:
    done = run(path, "new", *arguments)
    assert done.exit_code == 1
    assert done.stderr.startswith("request_invalid: expected")
    assert not path.exists()


def test_keys_are_listed_and_revoked_by_name_or_id(path: Path) -> None:
    run(path, "new", "ann")
    run(path, "new", "bob")
    ann, bob = api_keys.read(path)
    listed = run(path, "list").stdout
    assert ann.id in listed
    assert bob.id in listed
    assert run(path, "revoke", "ann").exit_code == 0
    assert run(path, "revoke", bob.id).exit_code == 0
    assert api_keys.read(path) == ()
    again = run(path, "revoke", "bob")
    assert (again.exit_code, again.stderr[:12]) == (1, "key_unknown:")


def test_a_file_that_is_not_there_is_an_error_that_names_it(path: Path) -> None:
    done = run(path, "list")
    assert done.exit_code == 1
    assert str(path) in done.stderr
