"""The power goes while a platform works, and what was not synced is gone, in every store.

At a random moment all processes are stopped and killed, and their files become what a disk would
have held (`tests.chaos.disks`). Then the platform starts on what is left, and everything that was
acknowledged must be there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

import httpx2
import pytest
from tests.chaos.disks import LoopFile, SyncedFiles
from tests.chaos.load import text_of
from tests.e2e.conftest import ARTIFACT, Platform

from verso_client import Document
from verso_core.errors import DocumentUnknown, VersoError
from verso_core.jobs import Status

CUTS = int(os.environ.get("POWER_CUTS", "1"))
COLLECTION = "cut"
_LOST_S = 300.0


class Disk(Protocol):
    """Holds a data folder whose power can be cut."""

    data: Path
    settings: dict[str, str]

    def lose(self, dice: random.Random) -> int:
        """Lose what was not synced, with nobody running; returns how many files lost something."""


@pytest.fixture(params=[SyncedFiles, LoopFile])
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    """Yield a disk in memory, where syncs cost nothing."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < 1 << 30:
        refuse("expected 1 GiB of /dev/shm")
    if (lacks := request.param.lacks()) is not None:
        refuse(lacks)
    with (
        tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as folder,
        request.param(Path(folder)) as made,
    ):
        yield made


def refuse(what: str) -> NoReturn:
    """Fail where everything must be there, else leave the test out."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@dataclass
class Acknowledged:
    """What a caller was told, in the order it was told; kept outside everything that is cut."""

    jobs: list[str] = field(default_factory=list)
    embeds: list[str] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)


class Caller:
    """Stores, deletes and embeds until it is told to stop, or nobody answers."""

    def __init__(self, platform: Platform, told: Acknowledged, name: str) -> None:
        self._platform = platform
        self._told = told
        self._name = name
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self.over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        with self._platform.client(patience_s=5.0) as client:
            while not self.over.is_set():
                number += 1
                name = f"{self._name}/{number}"
                texts = {f"{name}/{n}": text_of(f"{name}/{n}") for n in range(6)}
                documents = [Document(text, id=key) for key, text in texts.items()]
                gone = next(iter(texts))
                try:
                    [job] = client.submit(documents, collection=COLLECTION)
                    self._told.jobs.append(job.id)
                    self._told.stored.update(texts)
                    if number % 3 == 0:
                        client.wait(job.id)  # before, there is no such document
                        del self._told.stored[gone]  # from here on both are right
                        client.delete(gone, collection=COLLECTION)
                        self._told.gone.add(gone)
                    answer = httpx2.post(
                        f"{self._platform.url}/v1/embed",
                        json={"texts": [f"{name} {n}" for n in range(20)]},
                        timeout=10,
                    )
                    if answer.status_code == 200:
                        self._told.embeds.append(answer.headers["Verso-Job-Id"])
                except (VersoError, httpx2.HTTPError):
                    self.over.wait(0.1)


def cut_power(platform: Platform) -> None:
    """End everything at one moment."""
    platform.supervisor.suspend()
    for member in platform.supervisor.children(recursive=True):
        member.suspend()
    platform.stop(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(600 + 300 * CUTS)
def test_what_was_acknowledged_is_there_after_a_power_cut(disk: Disk) -> None:
    platform = Platform(
        disk.data,
        ARTIFACT,
        **disk.settings,
        VERSO_VERIFY_DELAY_S="0.1",
        VERSO_RAW_TEXT_RETENTION_S="0",
        VERSO_RESULT_INLINE_BYTES="1000",
        VERSO_READ_KEEP_S="3600",  # results are looked at again at the end
        VERSO_FREE_FLOOR_MIB="1",
    )
    dice, told = random.Random(11), Acknowledged()
    platform.start()
    try:
        with platform.client() as client:
            client.create_collection(COLLECTION)
        for number in range(CUTS):
            caller = Caller(platform, told, f"{number}")
            with platform.client() as client:
                # texts of this round are dropped already: they hang on vectors and patches alone
                while client.stats(COLLECTION).verified < 30 * (number + 1) or not told.gone:
                    caller.over.wait(0.1)
            caller.over.wait(dice.uniform(0.0, 1.0))
            cut_power(platform)
            caller.stop()
            assert disk.lose(dice), "the cut took nothing: this has shown nothing"
            platform.start()
            check(platform, told)
        platform.stop()
    finally:
        platform.close()


def check(platform: Platform, told: Acknowledged) -> None:
    """Look for everything that was acknowledged, byte for byte."""
    with platform.client(patience_s=_LOST_S) as client:
        for job in told.jobs:
            ended = client.wait(job, timeout_s=_LOST_S)
            assert (ended.status, ended.failed) == (Status.SUCCEEDED, 0)
        for job in told.embeds:
            assert len(client.results(job)) == 20
        ids = list(told.stored)
        assert platform.read_all(COLLECTION, ids) == told.stored
        for text in client.reconstruct(sorted(told.gone), collection=COLLECTION):
            assert text.error is not None
            assert text.error.code == DocumentUnknown.code
        client.embed(["and new work is done"])
