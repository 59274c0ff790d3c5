"""The trainer's settings, read from the environment once, by ``main``."""

from __future__ import annotations

import socket
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from verso_core.settings import LedgerSettings


class TrainerSettings(LedgerSettings, BaseSettings):
    """Every field is the environment variable ``VERSO_`` + its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="VERSO_", extra="ignore")

    models: Path = Field(
        default=Path("models"), description="folder of artifacts and heads; published into"
    )
    data: Path = Field(default=Path("verso-data"), description="folder for running trainings")
    threads: int = Field(default=2, ge=1, description="cores that a training may use")
    lease_s: float = Field(default=10.0, gt=0, description="a lease ends when it is not renewed")
    metrics_port: int = Field(default=0, ge=0, lt=65536, description="0 serves no metrics")
    heartbeat_file: Path | None = Field(
        default=None, description="touched while the trainer polls; for liveness probes"
    )
    trainer_name: str = Field(default_factory=socket.gethostname, description="in leases and logs")
    log_level: str = "INFO"
