"""The gateway's settings; ``main`` reads them from the environment once."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from verso_core.settings import BrokerSettings
from verso_core.webhooks import Network, networks
from verso_gateway.feed.records import TEXT_FIELDS, FieldMap
from verso_gateway.feed.routing import Routing

_MIB = 1024 * 1024
MODEL = "verso"
"""The name that stands for the model that the platform serves, whichever that is."""
_HEAD = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ORIGIN = re.compile(r"https?://[^/?#@\s,]+")
_HOST = re.compile(r"[\w.-]+|[0-9a-fA-F:.]+")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Aliases:
    """Names that callers use for models: ``name``, or ``name=head`` for reranking by a head.

    Attributes:
        targets: what each name stands for.
    """

    targets: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Aliases:
        """Read names with commas between them.

        Raises:
            ValueError: a name is empty, or the same as that of the model itself.
        """
        targets: dict[str, str] = {}
        for part in _names(text):
            name, is_pair, target = (one.strip() for one in part.partition("="))
            if not name or name == MODEL or (is_pair and not _HEAD.fullmatch(target)):
                raise ValueError(f"expected name or name=head, with commas, got {part!a}")
            targets[name] = target or MODEL
        return cls(targets)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


class Settings(BrokerSettings, BaseSettings):
    """Settings of one gateway process; each is the environment variable ``VERSO_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix="VERSO_", extra="ignore")

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8080, ge=0, le=65535, description="port to listen on")
    api_keys_file: Path | None = Field(
        default=None, description="hashed API keys, one a line; needed beyond loopback"
    )
    results: Path | None = Field(
        default=None, description="folder of results too large for the ledger, shared with workers"
    )
    body_limit_bytes: int = Field(
        default=16 * _MIB,
        ge=1024,
        description="largest JSON body, bytes; 1 MiB where no lists of texts are taken",
    )
    upload_limit_bytes: int = Field(
        default=256 * _MIB, ge=1024, description="largest NDJSON upload, bytes"
    )
    upload_limit_documents: int = Field(
        default=200_000, ge=1, description="most documents of one ingest request"
    )
    file_limit_bytes: int = Field(
        default=64 * _MIB, ge=1024, description="largest file that is ingested, bytes"
    )
    file_timeout_s: float = Field(
        default=30.0, gt=0, description="a file is refused if reading its text takes longer"
    )
    file_memory_bytes: int = Field(
        default=1024 * _MIB,
        ge=128 * _MIB,
        description="most memory of the process that reads a file, bytes",
    )
    file_processes: int = Field(default=2, ge=1, description="files that are read at once")
    held_limit_bytes: int = Field(
        default=512 * _MIB,
        ge=1024,
        description="request bytes held in memory at once, over all requests",
    )
    queue_limit_slices: int = Field(
        default=100_000, ge=1, description="most slices that wait in the ledger"
    )
    queue_limit_bytes: int = Field(
        default=1024 * _MIB, ge=1, description="most payload bytes that wait in the ledger"
    )
    tenant_share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="part of those limits that the work of one API key may use",
    )
    keep_s: int = Field(
        default=24 * 3600, ge=60, description="how long jobs and results are kept after their end"
    )
    read_keep_s: int = Field(
        default=60,
        ge=1,
        description="a read whose caller was told its result stays so long after its end",
    )
    wait_default_s: float = Field(
        default=10.0, ge=0, description="how long an interactive request waits for its result"
    )
    wait_max_s: float = Field(default=60.0, ge=0, description="longest wait a caller may ask for")
    ready_beat_age_s: float = Field(
        default=15.0, gt=0, description="ready only if the newest worker heartbeat is no older"
    )
    ready_embed_age_s: float = Field(
        default=30.0, gt=0, description="ready only if the newest embed is no older"
    )
    webhook_allow: str = Field(
        default="",
        description="networks that are not public and that webhooks may lead to",
    )
    cors_origins: str = Field(
        default="",
        description="origins whose pages may call this gateway with a key, or *",
    )
    mcp_hosts: str = Field(
        default="",
        description="names by which agents reach /mcp, with commas, besides loopback ones",
    )
    session_s: int = Field(
        default=12 * 3600, ge=60, description="a browser's session ends after so long, seconds"
    )
    audit_file: Path | None = Field(
        default=None, description="file of the audit log; unset, it goes with the other logs"
    )
    metrics_port: int = Field(
        default=0, ge=0, le=65535, description="port of /metrics; 0: it is on the gateway's own"
    )
    head_limit_bytes: int = Field(
        default=32 * 1024, ge=1024, description="longest head of a request, bytes"
    )
    head_timeout_s: float = Field(
        default=10.0, gt=0, description="give up on a request's head that takes longer"
    )
    connections_limit: int = Field(
        default=4096, ge=1, description="connections open at once; others are turned away"
    )
    stall_timeout_s: float = Field(
        default=30.0, gt=0, description="refuse a body that sends no byte for so long"
    )
    feed_routes: str = Field(
        default="*=logs",
        description="rules pattern=collection or pattern=collection:record, with commas, for what "
        "agents send; the first counts",
    )
    feed_labels: str = Field(
        default="", description="attributes that become labels of streams, with commas"
    )
    feed_text_fields: str = Field(
        default=",".join(TEXT_FIELDS),
        description="fields that the text of a structured record is looked for in, in order",
    )
    feed_otlp_port: int = Field(
        default=0, ge=0, le=65535, description="another port for OTLP, such as 4318; 0: none"
    )
    feed_bulk_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="port on which / is Elasticsearch's, such as 9200; 0: none",
    )
    feed_limit_bytes: int = Field(
        default=32 * _MIB, ge=1024, description="largest body of an agent, inflated, bytes"
    )
    feed_gather_ms: int = Field(
        default=40, ge=0, le=1000, description="how long an agent's request waits for others"
    )
    feed_keep_s: int = Field(
        default=3600, ge=60, description="how long jobs of agents' records are kept after their end"
    )
    feed_identity_s: int = Field(
        default=3600, ge=60, description="how long identities of records are remembered at least"
    )
    feed_deduplicate: bool = Field(
        default=False,
        description="whether records without an identity are recognised by what they say",
    )
    model_aliases: str = Field(
        default="",
        description="further names of the model, with commas; name=head: of a head that reranks",
    )
    tei_head: str = Field(
        default="intents", description="head that /tei/predict classifies texts with"
    )
    tail_limit: int = Field(
        default=100, ge=1, description="live tails of log lines open at once; more are turned away"
    )
    shutdown_grace_s: float = Field(
        default=10.0, gt=0, description="time for open requests after SIGTERM"
    )
    log_level: str = Field(default="INFO", description="logging level")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the gateway."""
        return is_loopback(self.host)

    @property
    def webhook_networks(self) -> tuple[Network, ...]:
        """Return the networks that are not public and that webhooks may lead to."""
        return networks(self.webhook_allow)

    @property
    def cors(self) -> tuple[str, ...]:
        """Return the origins whose pages may call this gateway."""
        return tuple(origin.strip() for origin in self.cors_origins.split(",") if origin.strip())

    @property
    def mcp_names(self) -> frozenset[str | None]:
        """Return the names that agents may call this gateway by, besides loopback ones."""
        return frozenset(name.lower() for name in _names(self.mcp_hosts))

    @property
    def tenant_part(self) -> float:
        """Return the part of a queue that one tenant may fill; without keys there is one tenant."""
        return 1.0 if self.api_keys_file is None else self.tenant_share

    @property
    def feed_ports(self) -> tuple[int, ...]:
        """Return the ports of protocols of agents."""
        return tuple(port for port in (self.feed_otlp_port, self.feed_bulk_port) if port)

    @property
    def routing(self) -> Routing:
        """Return the rules from sources to collections."""
        return Routing.parse(self.feed_routes)

    @property
    def feed_fields(self) -> FieldMap:
        """Return which fields of structured records are text, time and labels."""
        fields = FieldMap(text=_names(self.feed_text_fields), keeps_whole=self.routing.keeps_whole)
        return fields.with_labels(_names(self.feed_labels))

    @property
    def aliases(self) -> Aliases:
        """Return the further names of models."""
        return Aliases.parse(self.model_aliases)

    @field_validator("model_aliases")
    @classmethod
    def _aliases(cls, value: str) -> str:
        Aliases.parse(value)
        return value

    @field_validator("feed_routes")
    @classmethod
    def _rules(cls, value: str) -> str:
        Routing.parse(value)
        return value

    @field_validator("webhook_allow")
    @classmethod
    def _networks(cls, value: str) -> str:
        networks(value)
        return value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: str) -> str:
        for origin in filter(None, map(str.strip, value.split(","))):
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError("expected origins such as https://console.example, or *")
        return value

    @field_validator("mcp_hosts")
    @classmethod
    def _hosts(cls, value: str) -> str:
        for name in _names(value):
            if not _HOST.fullmatch(name):
                raise ValueError("expected names such as verso.example, without scheme or port")
        return value

    @model_validator(mode="after")
    def _other_ports(self) -> Settings:
        if self.metrics_port == self.port != 0:
            raise ValueError(f"expected another port for metrics than {self.port}, the gateway's")
        used = [port for port in (self.port, self.metrics_port, *self.feed_ports) if port]
        if len(set(used)) < len(used):
            raise ValueError("expected a port of its own for each: one is named twice")
        return self

    @model_validator(mode="after")
    def _keys_beyond_loopback(self) -> Settings:
        if not self.loopback and self.api_keys_file is None:
            raise ValueError(
                f"refusing to listen on {self.host} without API keys: set VERSO_API_KEYS_FILE"
            )
        return self
