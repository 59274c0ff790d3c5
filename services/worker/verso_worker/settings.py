"""The worker's settings, read from the environment once, by ``main``."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from verso_core.backup import COLD_NAME
from verso_core.settings import BrokerSettings, read_secret

Consistency = int | Literal["majority", "quorum", "all"]
"""How many replicas a read asks, and which points it returns: those that all of so many replicas
have; those that most of all replicas have (majority); that all of more than half have (quorum); or
that all have."""


@dataclass(frozen=True, slots=True)
class Replication:
    """What is asked of a Qdrant cluster; None leaves a value to the server.

    factor: replicas of each shard of a new collection, at least 1.
    shards: shards of a new collection, at least 1.
    write_consistency: replicas that must have applied a write before it is acknowledged.
    read_consistency: replicas that a read asks.
    """

    factor: int | None = None
    shards: int | None = None
    write_consistency: int | None = None
    read_consistency: Consistency | None = None

    @property
    def of_collections(self) -> bool:
        """Whether anything is asked that a collection has for good."""
        return (self.factor, self.shards, self.write_consistency) != (None, None, None)


class WorkerSettings(BrokerSettings, BaseSettings):
    """Every field is the environment variable ``VERSO_`` + its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="VERSO_")

    data: Path = Field(default=Path("verso-data"), description="folder of vectors and artifacts")
    run: Path | None = Field(
        default=None, description="folder of sockets; paths there must stay under 100 characters"
    )
    models: Path = Field(
        default=Path("models"), description="folder of artifacts and heads, with their registry"
    )
    results: Path | None = Field(
        default=None,
        description="folder of results too large for the ledger, the same for gateway and keeper; "
        "unset, the ledger holds all",
    )
    result_inline_bytes: int = Field(
        default=65536, ge=0, description="largest result that stays in the ledger, bytes"
    )
    qdrant_url: str | None = Field(
        default=None, description="a Qdrant server; unset, vectors are kept in data/vectors"
    )
    qdrant_api_key_file: Path | None = Field(
        default=None, description="holds the Qdrant server's key, in place of the next setting"
    )
    qdrant_api_key: str | None = Field(
        default=None, validate_default=True, description="for the Qdrant server"
    )
    qdrant_replication_factor: int | None = Field(
        default=None, ge=1, description="replicas of each shard of new collections"
    )
    qdrant_shard_number: int | None = Field(
        default=None, ge=1, description="shards of new collections"
    )
    qdrant_write_consistency_factor: int | None = Field(
        default=None,
        ge=1,
        description="replicas that must have a write of a new collection before it is acknowledged",
    )
    qdrant_read_consistency: Consistency | None = Field(
        default=None,
        description="replicas that a read asks: a number, majority, quorum or all",
    )
    cold_url: str | None = Field(
        default=None,
        pattern="^(file|s3|gs|az)://",
        description="object store of cold storage, a part of it that only this platform uses: "
        "file:///folder, s3://bucket/prefix, gs:// or az://; unset, the folder data/cold",
    )
    cold_after_days: float | None = Field(
        default=None,
        ge=0,
        description="lines and documents move to cold storage so many days after they arrived; "
        "unset, none",
    )
    threads: int = Field(default=2, ge=1, description="threads of one graph run")
    device: str = Field(default="cpu", pattern="^(cpu|cuda)$", description="where graphs run")
    encoder_precision: str = Field(
        default="float32",
        pattern="^(float32|float16)$",
        description="what the encoder computes in; float16 is for GPUs",
    )
    bulk_slices: int = Field(
        default=2, ge=1, description="bulk slices executed at once, beside one that is urgent"
    )
    interactive_slices: int = Field(default=4, ge=1, description="interactive slices, likewise")
    scrub_slices: int = Field(default=1, ge=1, description="scrub slices executed at once")
    lease_s: float = Field(default=10.0, gt=0, description="a lease ends when it is not renewed")
    idle_listen_s: float = Field(
        default=2.0,
        ge=0,
        description="how long an idle slot listens before it sleeps, seconds",
    )
    verify_delay_s: float = Field(
        default=1.0, ge=0, description="from commit to the independent verify, seconds"
    )
    raw_text_retention_s: float = Field(
        default=900.0, ge=0, description="from a passed verify to the drop of the text, seconds"
    )
    free_floor_mib: int = Field(
        default=256,
        ge=0,
        description="vectors and large results are not written below so much free disk",
    )
    text_cache_mib: int = Field(
        default=32, ge=0, description="texts that were read lately and are kept in memory, MiB"
    )
    encode_cache_mib: int = Field(
        default=16,
        ge=0,
        description="vectors and records of chunks that were ingested lately, kept in memory, MiB",
    )
    fitted_tables_mib: int = Field(
        default=256,
        ge=0,
        description="memory for tables fitted to collections; the least used ones are let go, MiB",
    )
    files_every_s: float = Field(
        default=86400.0,
        ge=0,
        description="how often files of artifacts and heads are hashed again, seconds; 0: never",
    )
    canary_paired_share: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="share of a canary's short reads, and ingests, that the stable version runs",
    )
    canary_differ: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="share of texts on which a canary may differ from the stable version",
    )
    canary_score_worse: float = Field(
        default=0.05,
        ge=0,
        le=2,
        description="by how much a canary's Brier score may be above the stable version's",
    )
    canary_slower: float = Field(
        default=0.5,
        ge=0,
        description="by what share a canary's p95 may be above the stable version's",
    )
    canary_false_alarm: float = Field(
        default=0.01,
        gt=0,
        lt=1,
        description="probability that a canary within these margins is ever withdrawn",
    )
    drain_s: float = Field(default=30.0, gt=0, description="time to finish on SIGTERM, seconds")
    metrics_port: int = Field(default=0, ge=0, lt=65536, description="0 serves no metrics")
    heartbeat_file: Path | None = Field(
        default=None, description="touched while the worker polls; for liveness probes"
    )
    worker_name: str = Field(default_factory=socket.gethostname, description="in leases and logs")
    log_level: str = "INFO"

    @field_validator("qdrant_api_key")
    @classmethod
    def _key(cls, value: str | None, info: ValidationInfo) -> str | None:
        file = info.data.get("qdrant_api_key_file")
        return value if file is None else read_secret(file)

    @field_validator("qdrant_read_consistency", mode="before")
    @classmethod
    def _consistency(cls, value: int | str | None) -> int | str | None:
        asked = str(value)
        counted = asked.isascii() and asked.isdigit() and int(asked) >= 1
        if value is None or counted or asked in ("majority", "quorum", "all"):
            return value
        raise ValueError(
            "expected VERSO_QDRANT_READ_CONSISTENCY as a number of replicas from 1, "
            f"or majority, quorum or all, got {asked!r}"
        )

    @model_validator(mode="after")
    def _replicated(self) -> WorkerSettings:
        """Refuse what the server would lower, or nobody would read, without a word."""
        replication = self.replication
        if self.qdrant_url is None and replication != Replication():
            raise ValueError("expected VERSO_QDRANT_URL with other VERSO_QDRANT_ settings")
        factor, least = replication.factor, replication.write_consistency
        if least is not None and (factor is None or least > factor):
            raise ValueError(
                "expected VERSO_QDRANT_WRITE_CONSISTENCY_FACTOR of at most "
                f"VERSO_QDRANT_REPLICATION_FACTOR ({factor or 'unset'}), got {least}"
            )
        asked = replication.read_consistency
        if isinstance(asked, int) and factor is not None and asked > factor:
            raise ValueError(
                "expected VERSO_QDRANT_READ_CONSISTENCY of at most "
                f"VERSO_QDRANT_REPLICATION_FACTOR ({factor}), got {asked}"
            )
        return self

    @model_validator(mode="after")
    def _shared(self) -> WorkerSettings:
        """Refuse cold storage in a folder of one worker among many."""
        many = self.qdrant_url is not None
        if many and self.cold_after_days is not None and self.cold_url is None:
            raise ValueError(
                "expected VERSO_COLD_URL, which all workers reach, with VERSO_COLD_AFTER_DAYS"
            )
        return self

    @property
    def cold_store(self) -> str:
        """The address of the object store of cold storage."""
        return self.cold_url or (self.data.resolve() / COLD_NAME).as_uri()

    @property
    def replication(self) -> Replication:
        """How a Qdrant cluster keeps and reads points."""
        return Replication(
            factor=self.qdrant_replication_factor,
            shards=self.qdrant_shard_number,
            write_consistency=self.qdrant_write_consistency_factor,
            read_consistency=self.qdrant_read_consistency,
        )
