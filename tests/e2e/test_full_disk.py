"""A disk that something else fills to its last byte: once there is room, all is as before."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.conftest import Platform

from verso_client import Client, Document
from verso_core.errors import VersoError

_DISK = 192 << 20


@pytest.fixture(scope="module")
def small_disk(new_platform: Callable[..., Platform]) -> Platform:
    """A platform in a mount namespace of its own, in which its data folder is a tmpfs."""
    tried = subprocess.run(["sh", "-c", "unshare -Urm true"], check=False, capture_output=True)
    if tried.returncode:
        if os.environ.get("CI"):
            pytest.fail("expected to be allowed a mount namespace")
        pytest.skip("no mount namespace here")
    platform = new_platform(VERSO_FREE_FLOOR_MIB="8")
    platform.data.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={_DISK} none "{platform.data}" && exec "$@"'
    platform.prefix = ["unshare", "-Urm", "sh", "-c", mount, "sh"]
    platform.start()
    return platform


def _filled(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 20)):
            pass
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(512)):
            pass
    assert shutil.disk_usage(folder).free == 0
    return filler


def _attempted(verso: Client, number: int) -> str | None:
    """Send a document; return its id if it was accepted."""
    try:
        verso.submit([Document(f"written on a full disk, {number}", id=f"full-{number}")])
    except VersoError:
        return None
    return f"full-{number}"


def test_a_full_disk_is_over_without_hands_once_there_is_room(small_disk: Platform) -> None:
    with small_disk.client() as verso:
        verso.ingest([Document("there was room", id="before")])
        small_disk.await_verified("default", 1)
    folder = Path(f"/proc/{small_disk.supervisor.pid}/root") / small_disk.data.relative_to("/")
    filler = _filled(folder)
    with small_disk.client(patience_s=0.0) as hasty:
        accepted = [_attempted(hasty, number) for number in range(5)]
        for part in ("worker", "keeper", "valkey"):
            os.kill(small_disk.pid(part), signal.SIGKILL)
            time.sleep(1.0)
        accepted += [_attempted(hasty, number) for number in range(5, 10)]
    filler.unlink()
    with small_disk.client(patience_s=240.0) as verso:
        verso.ingest([Document("there is room again", id="after")])
        assert verso.get("after").data == b"there is room again"
        assert verso.get("before").data == b"there was room"
        kept = [name for name in accepted if name is not None]
        small_disk.await_verified("default", 2 + len(kept))
        for name in kept:
            number = name.partition("-")[2]
            assert verso.get(name).data == f"written on a full disk, {number}".encode()
