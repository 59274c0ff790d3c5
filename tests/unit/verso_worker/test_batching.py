"""Batches are chosen fairly, within budget, by length; every text gets its own result back."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_worker.engine.batching import Closed, Item, Pool

_COSTS = st.lists(st.integers(0, 300), max_size=40)


def _drain(pool: Pool[int], *, budget: int, rows: int) -> list[list[Item[int]]]:
    pool.close()
    batches: list[list[Item[int]]] = []
    while True:
        try:
            pool.wait()
        except Closed:
            return batches
        batches.append(pool.take_batch(budget=budget, rows=rows))


@given(requests=st.lists(_COSTS, max_size=6), budget=st.integers(1, 800), rows=st.integers(1, 20))
def test_every_text_runs_once_and_results_keep_the_request_order(
    requests: list[list[int]], budget: int, rows: int
) -> None:
    pool: Pool[int] = Pool()
    waiting = [
        (pool.put([1000 * number + cost for cost in costs], costs), number, costs)
        for number, costs in enumerate(requests)
    ]
    for batch in _drain(pool, budget=budget, rows=rows):
        for item in batch:
            item.finish(-item.work)
    for request, number, costs in waiting:
        assert request.wait() == [-(1000 * number + cost) for cost in costs]


@given(costs=_COSTS, budget=st.integers(1, 800), rows=st.integers(1, 20))
def test_a_batch_stays_within_its_budget_or_is_one_text(
    costs: list[int], budget: int, rows: int
) -> None:
    pool: Pool[int] = Pool()
    pool.put(costs, costs)
    for batch in _drain(pool, budget=budget, rows=rows):
        assert 1 <= len(batch) <= rows
        longest = max(item.cost for item in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget


@given(costs=st.lists(st.integers(1, 300), min_size=1, max_size=40), seed=st.integers())
def test_batches_do_not_depend_on_the_order_of_a_request(costs: list[int], seed: int) -> None:
    shuffled = costs.copy()
    random.Random(seed).shuffle(shuffled)
    shapes = []
    for order in (costs, shuffled):
        pool: Pool[int] = Pool()
        pool.put(order, order)
        shapes.append([[i.cost for i in batch] for batch in _drain(pool, budget=600, rows=8)])
    assert shapes[0] == shapes[1]


def test_texts_of_like_length_run_together() -> None:
    pool: Pool[str] = Pool()
    pool.put(["a", "b", "c", "d"], [10, 100, 11, 99])
    assert [item.work for item in pool.take_batch(budget=200, rows=8)] == ["d", "b"]


def test_a_single_text_passes_a_bulk_request_that_was_served() -> None:
    pool: Pool[str] = Pool()
    pool.put(["bulk"] * 50, [100] * 50)
    pool.take_batch(budget=400, rows=8)
    pool.put(["query"], [12])
    assert [item.work for item in pool.take_batch(budget=400, rows=8)] == ["query"]


def test_a_batch_of_a_query_is_filled_with_shorter_bulk_texts() -> None:
    pool: Pool[str] = Pool()
    pool.put(["bulk"] * 5, [10] * 5)
    pool.take_batch(budget=10, rows=8)
    pool.put(["query"], [12])
    batch = pool.take_batch(budget=36, rows=8)
    assert sorted(item.work for item in batch) == ["bulk", "bulk", "query"]


def test_requests_share_places_in_turn() -> None:
    pool: Pool[str] = Pool()
    pool.put(["a"] * 4, [10] * 4)
    pool.put(["b"] * 4, [10] * 4)
    assert [item.work for item in pool.take_rows(4, wait=True)] == ["a", "b", "a", "b"]


def test_taking_rows_without_waiting_gives_nothing_from_an_empty_pool() -> None:
    assert Pool[str]().take_rows(3, wait=False) == []


def test_an_empty_request_is_complete() -> None:
    assert Pool[str]().put([], []).wait() == []


def test_a_closed_pool_ends_a_waiting_taker() -> None:
    pool: Pool[str] = Pool()
    ended = threading.Event()

    def take() -> None:
        with pytest.raises(Closed):
            pool.wait()
        ended.set()

    thread = threading.Thread(target=take)
    thread.start()
    pool.close()
    thread.join(60)
    assert ended.is_set()


def test_one_request_gives_work_to_every_taker_that_waits() -> None:
    pool: Pool[int] = Pool()
    together = threading.Barrier(2, timeout=60)

    def take() -> None:
        pool.wait()
        pool.take_batch(budget=1, rows=1)
        together.wait()  # the first batch is not over before the second was taken

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(pool._changed._waiters) < 2:  # type: ignore[attr-defined]
        time.sleep(0.001)
    pool.put([1, 2], [1, 1])
    for thread in threads:
        thread.join(60)
    assert not together.broken


@given(costs=_COSTS, padding=st.integers(0, 100))
def test_a_batch_has_no_more_padding_than_allowed(costs: list[int], padding: int) -> None:
    pool: Pool[int] = Pool()
    pool.put(costs, costs)
    pool.close()
    while batch := pool.take_batch(budget=4096, rows=64, padding=padding):
        longest = max(item.cost for item in batch)
        assert sum(longest - item.cost for item in batch) <= padding
    with pytest.raises(Closed):
        pool.wait()
