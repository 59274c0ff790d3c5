"""Facts about the stores' passwords in every service's settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from verso_gateway.settings import Settings
from verso_keeper.settings import KeeperSettings
from verso_training.service.settings import TrainerSettings
from verso_worker.settings import WorkerSettings

SERVICES: tuple[type[BaseSettings], ...] = (
    Settings,
    KeeperSettings,
    WorkerSettings,
    TrainerSettings,
)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_takes_a_stores_password_from_a_file(
    service: type[BaseSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for store in {"redis", "broker"} & {name.partition("_")[0] for name in service.model_fields}:
        path = tmp_path / store
        path.write_text(f"of-{store}\n")
        monkeypatch.setenv(f"VERSO_{store.upper()}_PASSWORD_FILE", str(path))
        assert f":of-{store}@127.0.0.1" in getattr(service(), f"{store}_url")
        monkeypatch.setenv(f"VERSO_{store.upper()}_URL", f"redis://{store}:6379/0")
        assert getattr(service(), f"{store}_url") == f"redis://:of-{store}@{store}:6379/0"


@pytest.mark.parametrize("service", SERVICES)
def test_a_lost_file_stops_the_service_and_shows_no_address(
    service: type[BaseSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERSO_REDIS_URL", "redis://:hidden@ledger:6379/0")
    monkeypatch.setenv("VERSO_REDIS_PASSWORD_FILE", str(tmp_path / "lost"))
    with pytest.raises(ValueError, match="password file") as caught:
        service()
    assert "hidden" not in str(caught.value)


def test_the_worker_takes_the_key_of_the_vector_server_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    path.write_text("of-qdrant\n")
    monkeypatch.setenv("VERSO_QDRANT_API_KEY_FILE", str(path))
    assert WorkerSettings().qdrant_api_key == "of-qdrant"
    path.write_text("")
    with pytest.raises(ValueError, match="expected a password"):
        WorkerSettings()
