"""The settings of the receiver of syslog, beside those of the gateway about agents' records."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from verso_gateway.auth import TENANT_DEFAULT
from verso_gateway.settings import Settings

_MIB = 1024 * 1024


class SyslogSettings(Settings):
    """Settings of one receiver; each is the environment variable ``VERSO_<NAME>``."""

    syslog_host: str = Field(default="127.0.0.1", description="address that syslog is received on")
    syslog_port: int = Field(
        default=5514, ge=0, le=65535, description="port of syslog over TCP; 0: none"
    )
    syslog_udp_port: int = Field(
        default=5514, ge=0, le=65535, description="port of syslog over UDP; 0: none"
    )
    syslog_tls_port: int = Field(
        default=0, ge=0, le=65535, description="port of syslog over TLS, such as 6514; 0: none"
    )
    syslog_tls_cert: Path | None = Field(
        default=None, description="certificate for syslog over TLS, PEM"
    )
    syslog_tls_key: Path | None = Field(default=None, description="its key, PEM")
    syslog_offset_s: int = Field(
        default=0,
        ge=-86_400,
        le=86_400,
        description="zone of times in syslog that say none, seconds east of UTC",
    )
    syslog_tenant: str = Field(
        default=TENANT_DEFAULT, description="name of the key whose collections syslog goes to"
    )
    syslog_udp_bytes: int = Field(
        default=16 * _MIB, ge=65536, description="datagrams held at once; more are dropped, bytes"
    )
    syslog_metrics_port: int = Field(
        default=0, ge=0, le=65535, description="port of the receiver's /metrics; 0: none"
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> SyslogSettings:
        if self.syslog_tls_port and None in (self.syslog_tls_cert, self.syslog_tls_key):
            raise ValueError("expected VERSO_SYSLOG_TLS_CERT and VERSO_SYSLOG_TLS_KEY for TLS")
        return self

    @model_validator(mode="after")
    def _keys_beyond_loopback(self) -> SyslogSettings:
        """Replace the gateway's check: syslog has no keys, and ``host`` is not listened on."""
        return self
