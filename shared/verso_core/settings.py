"""The settings that services share: the addresses of ledger and broker, and their passwords.

A password in an address shows wherever the environment is shown; one in a file, which is how
container platforms hand secrets to a process, does not.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from verso_core.errors import RequestInvalid

HOME_LEDGER = "home"
"""Name of the ledger at ``redis_url``."""
_LEDGER_NAME = re.compile(r"[a-z][a-z0-9]{0,15}", re.ASCII)
_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel")
_Settings = TypeVar("_Settings", bound=BaseModel)
_MOST = {"s": 10**9, "ms": 10**12, "days": 10_000, "mib": 1 << 40}
"""Largest numbers of settings, by unit: 10^9 s are 31 years; a timer takes 292."""
_MOST_EXACT = 1 << 53
"""Of every other unit: a script's numbers are float64."""
_LEAST_S = 0.001
"""The ledger counts milliseconds."""


class LedgerAddress(NamedTuple):
    """Name and address of a ledger."""

    name: str
    url: str


class LedgerSettings(BaseModel):
    """The addresses of the ledgers: of the home ledger, and of others where there are several."""

    model_config = ConfigDict(
        frozen=True,
        hide_input_in_errors=True,  # an address may hold a password
        allow_inf_nan=False,
    )

    redis_password_file: Path | None = Field(
        default=None, description="holds the ledger's password, in place of one in the address"
    )
    redis_url: str = Field(
        default="redis://127.0.0.1:6379/0",
        validate_default=True,
        description="ledger, entries and collections (Redis or Valkey)",
    )

    ledger_replicas: int = Field(
        default=0,
        ge=0,
        description="replicas of the ledger that must have a write before it is acknowledged",
    )

    ledgers: str = Field(
        default="",
        validate_default=True,
        description="further ledgers as name=address, with spaces between them; the same password",
    )

    @property
    def ledger_addresses(self) -> tuple[LedgerAddress, ...]:
        """Name and address of each ledger, the home ledger first."""
        others = (LedgerAddress(*word.split("=", 1)) for word in self.ledgers.split())
        return (LedgerAddress(HOME_LEDGER, self.redis_url), *others)

    @field_validator("ledgers")
    @classmethod
    def _ledgers(cls, value: str, info: ValidationInfo) -> str:
        names = [HOME_LEDGER]
        words = []
        for word in value.split():
            name, equals, url = word.partition("=")
            if not equals or "://" not in url or not _LEDGER_NAME.fullmatch(name):
                raise ValueError(
                    "expected name=address with spaces between several, each name a letter and up "
                    "to 15 more letters or digits, all lower case"
                )
            if name in names:
                raise ValueError(f"expected a name of its own for each ledger, got {name!r} twice")
            names.append(name)
            _check_address(url)
            words.append(f"{name}={with_password(url, info.data.get('redis_password_file'))}")
        return " ".join(words)

    @field_validator("redis_url", "broker_url", check_fields=False)
    @classmethod
    def _password(cls, value: str, info: ValidationInfo) -> str:
        _check_address(value)
        which = "redis" if info.field_name == "redis_url" else "broker"
        return with_password(value, info.data.get(f"{which}_password_file"))

    @field_validator("log_level", check_fields=False)
    @classmethod
    def _level(cls, value: str) -> str:
        if (level := value.upper()) not in logging.getLevelNamesMapping():
            raise ValueError("expected DEBUG, INFO, WARNING, ERROR or CRITICAL")
        return level

    @field_validator("*", mode="before")
    @classmethod
    def _path(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse an empty path, which would be the working directory."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if value == "" and kind in (Path, Path | None):
            raise ValueError("expected a path, got an empty one; leave it unset for none")
        return value

    @field_validator("*")
    @classmethod
    def _sensible(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse numbers with which clocks, timers and the ledger's scripts cannot count."""
        if isinstance(value, int | float):
            unit = str(info.field_name).rpartition("_")[2]
            most = _MOST.get(unit, _MOST_EXACT)
            if value > most:
                raise ValueError(f"expected at most {most:,}")
            if unit == "s" and 0 < value < _LEAST_S:
                raise ValueError(f"expected at least {_LEAST_S}")
        return value


class BrokerSettings(LedgerSettings):
    """The addresses of the ledger and of the broker."""

    broker_password_file: Path | None = Field(
        default=None, description="holds the broker's password, in place of one in the address"
    )
    broker_url: str = Field(
        default="redis://127.0.0.1:6379/1",
        validate_default=True,
        description="Celery's wake-up messages; may be lost",
    )


def read_settings(kind: Callable[..., _Settings], **given: str | Path | None) -> _Settings:
    """Return settings of the environment.

    Args:
        kind: their class.
        given: settings by field, in place of the environment's.

    Raises:
        RequestInvalid: one is malformed; the message names each such one and holds no value.
    """
    try:
        return kind(**given)
    except ValidationError as error:
        raise RequestInvalid("; ".join(faults(error))) from None


def faults(error: ValidationError) -> list[str]:
    """Return what is wrong with settings, one text a setting."""
    found = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(map(str, fault["loc"])).upper()
        found.append(f"VERSO_{where}: {fault['msg']}" if where else fault["msg"])
    return found


def _check_address(url: str) -> None:
    """Check an address as far as a client would before it connects.

    Raises:
        ValueError: it is malformed; the message holds no part of it, as that may be a password's.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ValueError(f"expected an address that starts with {'://, '.join(_SCHEMES)}://")
    if scheme not in ("redis", "rediss"):
        return
    try:
        port = urlsplit(url).port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("expected a port from 1 to 65535; a password's / ? # are percent-encoded")


def with_password(url: str, file: Path | None) -> str:
    """Return the address with the file's password in it, in place of any it had.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://`` or ``redis+sentinel://``, with or without a
            user name.
        file: holds the password; None leaves the address as it is.

    Raises:
        ValueError: the file cannot be read, or holds no password; the message names the file only.
    """
    if file is None:
        return url
    password = read_secret(file)
    # urllib refuses several hosts where a later one is an IPv6 address (Python 3.13 and newer).
    scheme, _, rest = url.partition("://")
    end = next((at for at, character in enumerate(rest) if character in "/?#"), len(rest))
    before, _, host = rest[:end].rpartition("@")
    user = before.partition(":")[0]
    return f"{scheme}://{user}:{quote(password, safe='')}@{host}{rest[end:]}"


def read_secret(file: Path) -> str:
    """Return the password or key in a file, without the space around it.

    Raises:
        ValueError: the file cannot be read, or holds none; the message names the file only.
    """
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise ValueError(f"cannot read the password file {file}: {type(exc).__name__}") from exc
    if not secret:
        raise ValueError(f"expected a password in {file}, got an empty file")
    return secret
