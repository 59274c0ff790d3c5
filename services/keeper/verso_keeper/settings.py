"""The keeper's settings, read from the environment once, by ``main``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from verso_core.settings import BrokerSettings
from verso_core.webhooks import networks


class KeeperSettings(BrokerSettings, BaseSettings):
    """Every field is the environment variable ``VERSO_`` + its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="VERSO_", extra="ignore")

    results: Path | None = Field(
        default=None, description="folder of results too large for the ledger, shared with workers"
    )
    lease_s: float = Field(
        default=10.0, gt=0, description="the workers' lease; they send three heartbeats in it"
    )
    probe_after_s: float = Field(
        default=10.0, gt=0, description="embed a short text when none was embedded for so long"
    )
    scrub_share: float = Field(
        default=0.05, ge=0, le=1, description="part of one core that scrubbing may take; 0 for none"
    )
    scrub_every_s: float = Field(
        default=86400.0,
        ge=0,
        description="from the start of one scrub pass to the next one, seconds",
    )
    scrub_pass_s: float = Field(
        default=2592000.0,
        gt=0,
        description="a pass behind this pace does not wait for quiet, seconds",
    )
    fit_after_chunks: int = Field(
        default=1000,
        ge=0,
        description="a collection's codec is fitted to its texts once it has so many; 0: never",
    )
    fit_growth: float = Field(
        default=0.1,
        gt=0,
        description="and again when new patches are larger than the fitted ones by this share",
    )
    rewrite_every_s: float = Field(
        default=43200.0,
        gt=0,
        description="the ledger's file, which holds dropped texts till then, is rewritten so often",
    )
    retention_every_s: float = Field(
        default=3600.0,
        gt=0,
        description="from one deletion of documents past their retention to the next, seconds",
    )
    webhook_allow: str = Field(
        default="", description="networks that webhooks may lead to although they are not public"
    )
    metrics_port: int = Field(default=0, ge=0, lt=65536, description="0 serves no metrics")
    heartbeat_file: Path | None = Field(
        default=None, description="touched while the keeper works; for liveness probes"
    )
    log_level: str = Field(default="INFO", description="least severe level that is logged")

    @field_validator("webhook_allow")
    @classmethod
    def _networks(cls, value: str) -> str:
        networks(value)
        return value
