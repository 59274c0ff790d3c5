"""A lane runs every text, and one that fails takes no neighbour with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from verso_core.errors import EngineUnavailable
from verso_worker.engine.lanes import Lane
from verso_worker.ipc.client import Client
from verso_worker.ipc.server import Server

Run = Callable[[Sequence[int]], Sequence[int]]


@pytest.fixture
def make_lane() -> Iterator[Callable[..., Lane[int, int]]]:
    with ExitStack() as stack:

        def make(run: Run, *, threads: int = 1) -> Lane[int, int]:
            lane = Lane("test", run, budget=100, rows=8, threads=threads)
            stack.callback(lane.close)
            return lane

        yield make


def _double(batch: Sequence[int]) -> list[int]:
    return [2 * work for work in batch]


def test_results_stand_in_the_order_of_the_request(
    make_lane: Callable[..., Lane[int, int]],
) -> None:
    works = [7, 3, 90, 1, 45, 12]
    assert make_lane(_double).submit(works, works) == [14, 6, 180, 2, 90, 24]


def test_a_text_that_fails_is_an_exception_among_good_results(
    make_lane: Callable[..., Lane[int, int]],
) -> None:
    def fail_on_five(batch: Sequence[int]) -> list[int]:
        if 5 in batch:
            raise RuntimeError("five")
        return _double(batch)

    results = make_lane(fail_on_five).submit([1, 5, 2, 3], [1] * 4)
    assert [results[0], *results[2:]] == [2, 4, 6]
    assert isinstance(results[1], RuntimeError)


def test_requests_of_many_threads_do_not_mix(make_lane: Callable[..., Lane[int, int]]) -> None:
    lane = make_lane(_double, threads=2)
    wrong: list[int] = []

    def submit(number: int) -> None:
        works = list(range(number, number + 30))
        if lane.submit(works, [1 + work % 9 for work in works]) != [2 * work for work in works]:
            wrong.append(number)

    threads = [threading.Thread(target=submit, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_requests_that_wait_together_run_together(
    make_lane: Callable[..., Lane[int, int]],
) -> None:
    started, go = threading.Event(), threading.Event()
    sizes: list[int] = []

    def run(batch: Sequence[int]) -> list[int]:
        sizes.append(len(batch))
        started.set()
        go.wait(60)
        return _double(batch)

    lane = make_lane(run)
    first = threading.Thread(target=lane.submit, args=([1], [1]))
    first.start()
    started.wait(60)
    others = [threading.Thread(target=lane.submit, args=([n], [1])) for n in range(4)]
    for thread in others:
        thread.start()
    while len(lane._pool._items) < 4:
        time.sleep(0.001)
    go.set()
    for thread in [first, *others]:
        thread.join()
    assert sizes == [1, 4]


def test_a_lone_text_is_run_by_the_thread_that_brings_it(
    make_lane: Callable[..., Lane[int, int]],
) -> None:
    ran: list[int] = []

    def run(batch: Sequence[int]) -> list[int]:
        ran.append(threading.get_ident())
        return _double(batch)

    lane = make_lane(run)
    assert lane.submit([3], [1]) == [6]
    assert lane.submit([3, 4], [1, 1]) == [6, 8]
    here = threading.get_ident()
    assert [one == here for one in ran] == [True, False]


def test_no_more_batches_run_at_once_than_the_lane_has_turns(
    make_lane: Callable[..., Lane[int, int]],
) -> None:
    lock, going, most = threading.Lock(), 0, 0

    def run(batch: Sequence[int]) -> list[int]:
        nonlocal going, most
        with lock:
            going += 1
            most = max(most, going)
        time.sleep(0.002)
        with lock:
            going -= 1
        return _double(batch)

    lane = make_lane(run, threads=2)
    wrong: list[int] = []

    def submit(count: int) -> None:
        works = list(range(count))
        answers = [lane.submit(works, [40] * count) for _ in range(20)]
        wrong.extend(count for answer in answers if answer != _double(works))

    callers = [threading.Thread(target=submit, args=(count,)) for count in (1, 1, 1, 1, 3, 5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(120)
    assert not wrong
    assert most == 2


def test_the_texts_of_a_caller_that_hung_up_are_withdrawn(
    make_lane: Callable[..., Lane[int, int]], tmp_path: Path
) -> None:
    batches: list[int] = []

    def slowly(batch: Sequence[int]) -> list[int]:
        batches.append(len(batch))
        time.sleep(0.1)
        return _double(batch)

    lane = make_lane(slowly)

    def work(*_: object) -> tuple[dict[str, Any], list[bytes]]:
        lane.submit([1] * 4000, [50] * 4000)  # 2,000 batches, 200 seconds
        return {}, []

    server = Server(tmp_path / "s", {"work": work})
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with closing(Client(tmp_path / "s", 0.3)) as client, pytest.raises(EngineUnavailable):
        client.call("work")
    while lane.figures()["waiting"]:
        time.sleep(0.01)
    assert len(batches) < 1000
    server.close()
    thread.join(60.0)
