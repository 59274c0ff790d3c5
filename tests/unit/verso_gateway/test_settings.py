"""Facts about the gateway's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from verso_gateway.settings import Settings


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert Settings(host=host).loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "verso.example"])  # noqa: S104
def test_beyond_loopback_keys_are_needed(host: str) -> None:
    with pytest.raises(ValidationError, match="without API keys"):
        Settings(host=host)
    assert not Settings(host=host, api_keys_file=Path("keys")).loopback


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERSO_PORT", "9")
    assert Settings().port == 9
