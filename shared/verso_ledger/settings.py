"""The settings that every service has: where the ledger and the broker are.

Passwords of the two come as files, as container platforms hand secrets to a process: a password in
an address shows wherever the environment is shown; one in a file does not.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class LedgerSettings(BaseSettings):
    """Settings of a service that uses the ledger; each is the environment variable ``VERSO_…``."""

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
        default="redis://127.0.0.1:6379/0",
        validate_default=True,
        description="the ledger (Redis or Valkey): jobs, entries and collections",
    )

    @field_validator("redis_url")
    @classmethod
    def _with_ledger_password(cls, value: str, info: ValidationInfo) -> str:
        return with_password(value, info.data.get("redis_password_file"))


class ServiceSettings(LedgerSettings):
    """Settings of a service that also sends or receives wake-ups."""

    broker_password_file: Path | None = Field(
        default=None, description="holds the broker's password, in place of one in the address"
    )
    broker_url: str = Field(
        default="redis://127.0.0.1:6379/1",
        validate_default=True,
        description="the Celery broker that carries wake-ups; a lost message does no harm",
    )
    results: Path | None = Field(
        default=None,
        description="folder of results too large for the ledger, the same for gateway, worker and "
        "keeper; unset, the ledger holds all",
    )

    @field_validator("broker_url")
    @classmethod
    def _with_broker_password(cls, value: str, info: ValidationInfo) -> str:
        return with_password(value, info.data.get("broker_password_file"))


def with_password(url: str, file: Path | None) -> str:
    """Return the address with the file's password in it, in place of any it had.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``, with or without a user name.
        file: holds the password and perhaps a line's end; None leaves the address as it is.

    Raises:
        ValueError: the file cannot be read, or holds no password; the message names the file only.
    """
    if file is None:
        return url
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(f"cannot read the password file {file}: {type(exc).__name__}") from exc
    if not password:
        raise ValueError(f"expected a password in {file}, got an empty file")
    parts = urlsplit(url)
    before, _, host = parts.netloc.rpartition("@")
    user = before.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))
