"""Results too large for the ledger, on a platform whose folder for them is a disk of 1 MiB."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from tests.e2e.conftest import Platform

from verso_client import Client
from verso_core.jobs import Status

TEXTS = [f"session {n} opened" for n in range(60)]
_DISK = 1 << 20


@pytest.fixture(scope="module")
def small_disk(new_platform: Callable[..., Platform]) -> Platform:
    """A platform in a mount namespace of its own, in which the folder of results is a tmpfs."""
    tried = subprocess.run(["sh", "-c", "unshare -Urm true"], check=False, capture_output=True)
    if tried.returncode:
        if os.environ.get("CI"):
            pytest.fail("expected to be allowed a mount namespace")
        pytest.skip("no mount namespace here")
    platform = new_platform(VERSO_RESULT_INLINE_BYTES="2000", VERSO_FREE_FLOOR_MIB="0")
    results = platform.data / "results"
    results.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={_DISK} none "{results}" && exec "$@"'
    platform.prefix = ["unshare", "-Urm", "sh", "-c", mount, "sh"]
    platform.start()
    return platform


@pytest.fixture
def folder(small_disk: Platform) -> Path:
    """The folder as the platform sees it."""
    root = Path(f"/proc/{small_disk.pid('worker')}/root")
    return root / (small_disk.data / "results").relative_to("/")


@pytest.fixture
def client(small_disk: Platform) -> Iterator[Client]:
    with small_disk.client(patience_s=30.0) as found:
        yield found


def files_of(folder: Path, job: str) -> list[Path]:
    return [path for path in (folder / job[:2] / job).iterdir() if not path.name.startswith(".")]


def embed(platform: Platform, *, wait_s: int) -> httpx2.Response:
    return httpx2.post(
        f"{platform.url}/v1/embed", json={"texts": TEXTS},
        headers={"Prefer": f"wait={wait_s}"}, timeout=120,
    )  # fmt: skip


def test_a_large_result_is_the_same_answer_from_a_file(
    small_disk: Platform, folder: Path, client: Client
) -> None:
    answer = embed(small_disk, wait_s=60)
    assert answer.status_code == 200, answer.text
    job = answer.headers["Verso-Job-Id"]
    assert len(files_of(folder, job)) == 1
    with small_disk.redis() as ledger:
        assert len(ledger.hget(f"verso:result:{job}", "0")) == 41
    page = httpx2.get(f"{small_disk.url}/v1/jobs/{job}", timeout=60).json()
    assert page["next_cursor"] is None
    assert page["status"] == Status.SUCCEEDED
    vectors = [item["embedding"] for item in page["results"]]
    # one at a time they are small and never leave the ledger
    alone = client.embed([TEXTS[0]])[0].embedding
    assert vectors[0] == pytest.approx(list(alone), abs=1e-5)
    assert len(vectors) == len(TEXTS)


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_file_that_is_lost_is_an_error_that_says_so(
    small_disk: Platform, folder: Path, harm: str
) -> None:
    job = embed(small_disk, wait_s=60).headers["Verso-Job-Id"]
    [path] = files_of(folder, job)
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    answer = httpx2.get(f"{small_disk.url}/v1/jobs/{job}", timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (410, "result_lost")
    assert answer.json()["retryable"] is False


def test_a_full_disk_makes_a_job_wait_and_loses_nothing(
    small_disk: Platform, folder: Path, client: Client
) -> None:
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(folder).free == 0
    answer = embed(small_disk, wait_s=0)
    assert answer.status_code == 202
    job = answer.json()["id"]
    deadline = time.monotonic() + 240
    with small_disk.redis() as ledger:
        while ledger.hget(f"verso:slice:{job}.0", "code") != b"disk_full":
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert not client.job(job).status.terminal
    filler.unlink()
    assert client.wait(job, timeout_s=300).status is Status.SUCCEEDED
    assert len(files_of(folder, job)) == 1
    assert len(client.results(job)) == len(TEXTS)
