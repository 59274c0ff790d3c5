"""Grouping, failing and refusing of writes, with a target that only counts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from verso_core.errors import DiskFull, VectorInvalid, VectorsUnavailable
from verso_worker.stores.edge.commit import Committer


class Disk:
    """A target that remembers what was applied and what of it was flushed."""

    def __init__(self) -> None:
        self.applied: list[int] = []
        self.flushed: list[int] = []
        self.flushes = 0
        self.broken = False
        self.gate = threading.Event()
        self.gate.set()

    def flush(self) -> None:
        self.gate.wait(60)
        if self.broken:
            raise OSError(5, "Input/output error")
        self.flushes += 1
        self.flushed = list(self.applied)

    def apply(self, number: int) -> Callable[[], None]:
        return lambda: self.applied.append(number)


class Stage:
    """A committer with its surroundings."""

    def __init__(self) -> None:
        self.free = 10_000
        self.deaths: list[str] = []
        self.died = threading.Event()
        self.idled = threading.Event()
        self.disk = Disk()
        self.committer = Committer(
            free_bytes=lambda: self.free,
            floor_bytes=1_000,
            idle_s=0.05,
            idle=self.idled.set,
            fatal=self.fatal,
        )

    def fatal(self, reason: str) -> NoReturn:
        self.deaths.append(reason)
        self.died.set()
        while True:  # as after the end of a process: nothing more happens in this thread
            threading.Event().wait()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.committer.start()
    yield made
    made.disk.gate.set()
    made.committer.close()


def test_a_write_is_flushed_when_it_is_answered(stage: Stage) -> None:
    for number in range(5):
        stage.committer.write(stage.disk, stage.disk.apply(number), size_bytes=1)
        assert stage.disk.flushed[-1] == number


def test_writes_that_wait_share_one_flush(stage: Stage) -> None:
    stage.disk.gate.clear()
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(stage.committer.write, stage.disk, stage.disk.apply(-1), size_bytes=1)
        while not stage.disk.applied:
            time.sleep(0.001)
        others = [
            pool.submit(stage.committer.write, stage.disk, stage.disk.apply(n), size_bytes=1)
            for n in range(19)
        ]
        while stage.committer._waiting.qsize() < 19:
            time.sleep(0.001)
        assert not first.done()
        stage.disk.gate.set()
        for future in [first, *others]:
            future.result(60)
    assert stage.disk.flushes == 2
    assert sorted(stage.disk.flushed) == list(range(-1, 19))


def test_a_refused_write_fails_alone(stage: Stage) -> None:
    def refuse() -> None:
        raise VectorInvalid("bad")

    def crash() -> None:
        raise RuntimeError("the text of a user")

    with pytest.raises(VectorInvalid):
        stage.committer.write(stage.disk, refuse, size_bytes=1)
    with pytest.raises(VectorsUnavailable, match="RuntimeError") as caught:
        stage.committer.write(stage.disk, crash, size_bytes=1)
    assert "text of a user" not in str(caught.value)
    stage.committer.write(stage.disk, stage.disk.apply(1), size_bytes=1)
    assert stage.disk.flushed == [1]
    assert stage.deaths == []


def test_the_floor_stops_writes_but_not_removals(stage: Stage) -> None:
    stage.free = 1_500
    with pytest.raises(DiskFull, match="1500"):
        stage.committer.write(stage.disk, stage.disk.apply(1), size_bytes=501)
    assert stage.disk.applied == []
    stage.committer.write(stage.disk, stage.disk.apply(2), size_bytes=500)
    stage.free = 0
    stage.committer.write(stage.disk, stage.disk.apply(3), size_bytes=0)
    assert stage.disk.flushed == [2, 3]


def test_an_action_runs_alone_after_the_writes_before_it(stage: Stage) -> None:
    seen: list[list[int]] = []
    stage.disk.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        write = pool.submit(stage.committer.write, stage.disk, stage.disk.apply(1), size_bytes=1)
        while not stage.disk.applied:
            time.sleep(0.001)
        alone = pool.submit(stage.committer.alone, lambda: seen.append(list(stage.disk.flushed)))
        stage.disk.gate.set()
        write.result(60)
        alone.result(60)
    assert seen == [[1]]


def test_quiet_moments_are_told(stage: Stage) -> None:
    assert stage.idled.wait(60)


def test_a_failed_flush_ends_the_process_and_answers_nobody() -> None:
    stage = Stage()
    stage.disk.broken = True
    stage.committer.start()
    answered = threading.Event()

    def write() -> None:
        stage.committer.write(stage.disk, stage.disk.apply(1), size_bytes=1)
        answered.set()

    threading.Thread(target=write, daemon=True).start()
    assert stage.died.wait(60)
    assert "OSError" in stage.deaths[0]
    assert not answered.wait(0.1)
