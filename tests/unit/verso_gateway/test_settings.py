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


def test_metrics_have_another_port_than_the_gateway() -> None:
    with pytest.raises(ValidationError, match="another port"):
        Settings(port=9, metrics_port=9)


def test_origins_are_read_from_one_setting() -> None:
    origins = Settings(cors_origins="https://a.example, http://localhost:5173").cors
    assert origins == ("https://a.example", "http://localhost:5173")
    assert Settings().cors == ()
    for wrong in ("a.example", "https://a.example/", "null", "https://a.example https://b.example"):
        with pytest.raises(ValidationError, match="origins"):
            Settings(cors_origins=wrong)
