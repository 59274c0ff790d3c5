"""API keys: what each may do, and the file that holds their hashes.

A key is ``vk_`` and 32 random bytes in base64url. The file holds one key a line: a name, the
SHA-256 of the whole key in hex, and settings; it reveals no key. ``#`` starts a comment:

    shipper 9f86d081...0f00a08 scope=ingest collections=logs,web-* expires=2027-01-01T00:00:00Z

The name is the tenant, so two lines with one name are two keys of one tenant, which is how a key is
replaced without a gap. A line without ``scope`` is a key from before there were scopes, and may do
everything. ``collections`` are names, or beginnings of names that end in ``*``.

A random key of 256 bits needs no slow hash: there is no dictionary to try.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from verso_core import files
from verso_core.errors import KeyUnknown

FILE_NAME = "api-keys"
"""Of the file in the data folder of `verso up`."""
ID_CHARACTERS = 12
"""Hex digits of the digest that name a key in lists and in the audit log."""
_LEAST_OF_ID = 4
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\*?|\*")
_SETTINGS = frozenset({"scope", "collections", "expires"})


class Scope(StrEnum):
    """What a key may be allowed to do."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Key:
    """A known key.

    Attributes:
        name: its name, which is also its tenant.
        digest: SHA-256 of the key.
        scopes: what it may do; None, of a key without scopes, everything.
        collections: the only collections that it may see; None for no such list.
        expires: when it stops being valid.
    """

    name: str
    digest: bytes
    scopes: frozenset[Scope] | None = None
    collections: tuple[str, ...] | None = None
    expires: datetime | None = None

    @property
    def id(self) -> str:
        """The beginning of its digest, which names it without revealing it."""
        return self.digest.hex()[:ID_CHARACTERS]

    def may(self, scope: Scope) -> bool:
        """Whether it has a scope; ``admin`` includes the others."""
        return self.scopes is None or bool(self.scopes & {scope, Scope.ADMIN})

    def lists(self, collection: str) -> bool:
        """Whether its list of collections names a collection."""
        return any(
            collection.startswith(pattern[:-1]) if pattern.endswith("*") else collection == pattern
            for pattern in self.collections or ()
        )

    def expired(self, now: datetime) -> bool:
        """Whether it is no longer valid."""
        return self.expires is not None and now >= self.expires

    def line(self) -> str:
        """Return its line of the file."""
        parts = [self.name, self.digest.hex()]
        if self.scopes is not None:
            parts.append("scope=" + ",".join(scope for scope in Scope if scope in self.scopes))
        if self.collections is not None:
            parts.append("collections=" + ",".join(self.collections))
        if self.expires is not None:
            parts.append("expires=" + self.expires.isoformat(timespec="seconds"))
        return " ".join(parts)


def mint(
    name: str,
    *,
    scopes: Sequence[Scope] | None = None,
    collections: Sequence[str] | None = None,
    expires: datetime | None = None,
) -> tuple[str, Key]:
    """Return a new key, shown once, and what its file keeps of it.

    Raises:
        ValueError: no key can have this name, or these settings together.
    """
    secret = "vk_" + secrets.token_urlsafe(32)
    key = Key(
        name=name,
        digest=hashlib.sha256(secret.encode()).digest(),
        scopes=None if scopes is None else frozenset(scopes),
        collections=tuple(collections) if collections else None,
        expires=expires,
    )
    return secret, _parse_line(key.line())


def parse(text: str) -> tuple[Key, ...]:
    """Return the keys in the text of a file.

    Raises:
        ValueError: a line is no key; the message names the line and quotes nothing.
    """
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not (line := line.split("#", 1)[0].strip()):
            continue
        try:
            keys.append(_parse_line(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return tuple(keys)


def read(path: Path) -> tuple[Key, ...]:
    """Return the keys of a file; there may be none.

    Raises:
        ValueError: it is no file of keys.
        OSError: it cannot be read.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except ValueError as error:  # also of bytes that are no UTF-8
        reason = "expected UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise ValueError(f"{path}, {reason}") from None


def read_some(path: Path) -> tuple[Key, ...]:
    """Return the keys of a file that a platform is about to start with: at least one.

    Raises:
        ValueError: there is none, or it is no file of keys.
        OSError: it cannot be read.
    """
    keys = read(path)
    if not keys:
        raise ValueError(f"{path}: expected at least one key; `verso keys new NAME` makes one")
    return keys


def add(path: Path, key: Key) -> None:
    """Add a key to a file, which is made if need be; its owner alone may read it.

    Raises:
        ValueError: it is no file of keys.
        OSError: it cannot be read or written; it is unchanged.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _changing(path):
        _write(path, [*_lines(path), key.line()])


def revoke(path: Path, which: str) -> tuple[Key, ...]:
    """Remove from a file the keys of a name, or the one whose id begins with ``which``.

    Returns:
        The keys that were removed.

    Raises:
        KeyUnknown: there is none, or the beginning fits several.
        ValueError: it is no file of keys.
        OSError: it cannot be read or written; it is unchanged.
    """
    path.stat()  # the error names the file, not its folder
    with _changing(path):
        keys = read(path)
        gone = tuple(key for key in keys if key.name == which)
        if not gone:
            gone = tuple(key for key in keys if key.digest.hex().startswith(which.lower()))
            if len(gone) != 1 or len(which) < _LEAST_OF_ID:
                raise KeyUnknown(f"expected the name or the id of one key, got {which!r}")
        _write(path, [line for line in _lines(path) if not set(parse(line)) & set(gone)])
        return gone


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Keep other processes of this machine from changing a file meanwhile: its folder is locked."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a network file system may lock no folder
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    read(path)
    return path.read_text(encoding="utf-8").splitlines()


def _write(path: Path, lines: Sequence[str]) -> None:
    before = path.stat() if path.exists() else None
    files.replace(path, "".join(f"{line}\n" for line in lines).encode(), mode=0o600)
    if before is not None:  # written by root for the user that the gateway runs as
        with contextlib.suppress(PermissionError):
            os.chown(path, before.st_uid, before.st_gid)


def _parse_line(line: str) -> Key:
    parts = line.split()
    if len(parts) < 2 or not (_NAME.fullmatch(parts[0]) and _DIGEST.fullmatch(parts[1])):
        raise ValueError("expected a name and a SHA-256 in hex")
    given: dict[str, str] = {}
    for setting in parts[2:]:
        option, _, value = setting.partition("=")
        if option not in _SETTINGS or option in given:
            raise ValueError(f"expected each of {sorted(_SETTINGS)} at most once, as name=value")
        given[option] = value
    scopes = _scopes(given["scope"]) if "scope" in given else None
    collections = _patterns(given["collections"]) if "collections" in given else None
    if collections is not None and (scopes is None or Scope.ADMIN in scopes):
        raise ValueError("expected no collections for a key that may do everything: it sees all")
    expires = moment(given["expires"]) if "expires" in given else None
    return Key(parts[0], bytes.fromhex(parts[1]), scopes, collections, expires)


def _scopes(value: str) -> frozenset[Scope]:
    try:
        return frozenset(map(Scope, value.split(",")))
    except ValueError:
        raise ValueError(f"expected scopes among {', '.join(Scope)}") from None


def _patterns(value: str) -> tuple[str, ...]:
    patterns = tuple(value.split(","))
    if not all(map(_PATTERN.fullmatch, patterns)):
        raise ValueError("expected names of collections, or beginnings that end in *")
    return patterns


def moment(value: str) -> datetime:
    """Return the time that a key expires.

    Raises:
        ValueError: it is no time with an offset from UTC.
    """
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("expected a time such as 2027-01-01T00:00:00Z") from None
    if found.tzinfo is None:
        raise ValueError("expected a time with its offset from UTC, such as 'Z'")
    return found
