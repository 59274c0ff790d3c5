"""The data folder of a one-machine platform: its layout, and the lock that guards it.

    DIR/lock            held as long as any process of the platform lives
    DIR/valkey/         ledger and patches (append-only file), configuration
    DIR/api-keys        hashes of API keys, if there are any
    DIR/stores.json     where stores outside this folder and sockets are, as of the last start
    DIR/secret          password of this folder's Valkey, readable by its owner only
    DIR/logs/           one file for each process
    DIR/models/         the served artifacts and heads, with their registry
    DIR/cache/          compiled codec kernels, where the installed packages cannot be written
    DIR/results/        results too large for the ledger, as long as their jobs are kept
    DIR/...             the worker's data, above all the vectors

Every child process inherits the lock. When the supervisor is killed, the kernel kills its children
a moment later. A second start in between must not open the same files, and cannot, because the lock
is free only when the last child has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verso_core import files
from verso_core.api_keys import FILE_NAME
from verso_core.errors import RequestInvalid, Unavailable

_STORES_NAME = "stores.json"
_SECRET = re.compile(r"[\w.~-]+", re.ASCII)
"""What is a password in an address and in a line of Valkey's settings as it is."""
LONGEST_SOCKET_PATH = 100
"""Bytes; Linux takes 107 and macOS 103 in ``sockaddr_un``, both without the closing zero."""


@dataclass(frozen=True)
class DataFolder:
    """The paths below one data folder. ``root`` is absolute."""

    root: Path

    @property
    def valkey(self) -> Path:
        return self.root / "valkey"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def api_keys(self) -> Path:
        return self.root / FILE_NAME

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def results(self) -> Path:
        return self.root / "results"

    def keep_stores(self, environment: Mapping[str, str]) -> None:
        """Note a worker's settings that say where the stores outside this folder are.

        And the sockets: who takes a backup may have another folder for them, or none.
        """
        named = {
            "ledgers": environment.get("VERSO_LEDGERS", ""),
            "cold_url": environment.get("VERSO_COLD_URL"),
            "run": environment.get("VERSO_RUN"),
        }
        files.replace(self.root / _STORES_NAME, json.dumps(named).encode(), mode=0o600)

    def stores(self) -> dict[str, str | None]:
        """Return the settings that the last start has noted; none of an earlier version.

        Raises:
            RequestInvalid: the file is damaged.
        """
        path = self.root / _STORES_NAME
        try:
            named: Any = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError:
            named = None
        if not isinstance(named, dict):
            raise _damaged(path, "JSON", remedy="`verso up` writes it again")
        return named

    def prepare(self) -> None:
        """Create the folder and its parts, accessible to their owner only.

        A folder that exists keeps its mode, as more may be in it than ours; the parts are closed.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.valkey, self.logs):
            path.mkdir(exist_ok=True)
            path.chmod(0o700)

    def log_path(self, process: str) -> Path:
        """Return the log file of a process."""
        return self.logs / f"{process}.log"

    def secret(self) -> str:
        """Return the password of this folder's Valkey; the first call generates it.

        Raises:
            RequestInvalid: the file is damaged.
        """
        path = self.root / "secret"
        with contextlib.suppress(FileNotFoundError):
            if kept := path.read_text(encoding="ascii", errors="replace").strip():
                if _SECRET.fullmatch(kept) is None:
                    remedy = "stop the platform and remove the file; `verso up` makes another one"
                    raise _damaged(path, "a password", remedy=remedy)
                return kept
        # Also in place of an empty one: Valkey is told the password at each start.
        made = secrets.token_hex(32)
        files.replace(path, made.encode("ascii"), mode=0o600)
        return made

    def valkey_port(self) -> int | None:
        """Return the port of the last start of this folder's Valkey; None before any start.

        Raises:
            RequestInvalid: the file is damaged.
        """
        path = self.valkey / "valkey.conf"
        try:
            words = path.read_text(encoding="utf-8", errors="surrogateescape").split()
        except FileNotFoundError:
            return None
        try:
            return int(words[words.index("port") + 1])
        except (ValueError, IndexError):
            remedy = "a start of `verso up` writes it again"
            raise _damaged(path, "a line with a port", remedy=remedy) from None

    def run_folder(self) -> Path:
        """Return a folder for Unix sockets: below the data folder unless its path is too long."""
        near = self.root / "run"
        if len(os.fsencode(near)) + 32 <= LONGEST_SOCKET_PATH:
            near.mkdir(mode=0o700, exist_ok=True)
            return near
        far = self._far_run_folder()
        far.mkdir(mode=0o700, exist_ok=True)
        if far.stat().st_uid != os.getuid() or far.is_symlink():
            raise Unavailable(f"expected {far} to be this user's own folder")
        far.chmod(0o700)
        return far

    def remove_far_run_folder(self) -> None:
        """Remove the folder for sockets, if it is not below the data folder; none is in use."""
        far = self._far_run_folder()
        with contextlib.suppress(OSError):
            if far.stat().st_uid == os.getuid() and not far.is_symlink():
                shutil.rmtree(far)

    def _far_run_folder(self) -> Path:
        named = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
        # after `su`, it may name another user's folder, or one that is not there
        usable = named.is_absolute() and os.access(named, os.W_OK | os.X_OK)
        parent = named if usable else Path(tempfile.gettempdir())
        name = hashlib.blake2b(os.fsencode(self.root), digest_size=6).hexdigest()
        return parent / f"verso-{os.getuid()}-{name}"

    def lock(self, *, wait_s: float = 5.0) -> int:
        """Take the folder's lock.

        Args:
            wait_s: seconds to wait for processes of an earlier run to end.

        Returns:
            The lock's open file, which child processes must inherit.

        Raises:
            Unavailable: another platform uses this folder.
        """
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                os.close(descriptor)
                raise Unavailable(
                    f"expected {self.root} to be free, but process {owner} uses it"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
            return descriptor


def _damaged(path: Path, expected: str, *, remedy: str) -> RequestInvalid:
    return RequestInvalid(f"expected {expected} in {path}, which is damaged: {remedy}")
