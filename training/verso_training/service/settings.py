"""The trainer's settings, read from the environment once, by ``main``."""

from __future__ import annotations

import socket
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from verso_core.passwords import with_password


class TrainerSettings(BaseSettings):
    """Every field is the environment variable ``VERSO_`` + its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix="VERSO_",
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,  # an address may hold a password
    )

    redis_password_file: Path | None = Field(
        default=None, description="holds the ledger's password, in place of one in the address"
    )
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0", validate_default=True, description="the ledger"
    )
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

    @field_validator("redis_url")
    @classmethod
    def _password(cls, value: str, info: ValidationInfo) -> str:
        return with_password(value, info.data.get("redis_password_file"))
