"""Facts about the gateway's processes that read files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest
from prometheus_client import CollectorRegistry

from verso_core.errors import FileTooLarge, QueueFull
from verso_gateway.extract.child import Bounds
from verso_gateway.extract.formats import ANY
from verso_gateway.extract.pool import Extractors, File
from verso_gateway.metrics import FileMetrics

FILES = Path(__file__).parents[2] / "data" / "files"
HANDBOOK = File((FILES / "handbook.pdf").read_bytes(), ANY, "handbook.pdf")
SLOW = File(b"<!doctype html>" + b"<div><b>" * 100_000, "text/html", "")


def extractors(*, seconds: float = 20.0, idle_s: float = 30.0) -> Extractors:
    metrics = FileMetrics(CollectorRegistry())
    bounds = Bounds(seconds, 1 << 30)
    return Extractors(processes=1, bounds=bounds, metrics=metrics, idle_s=idle_s)


def processes() -> list[psutil.Process]:
    return [
        one
        for one in psutil.Process().children()
        if one.status() != psutil.STATUS_ZOMBIE and "verso_gateway.extract" in one.cmdline()
    ]


async def test_a_process_is_used_again() -> None:
    pool = extractors()
    assert processes() == []  # none before the first file
    assert (await pool.read(HANDBOOK)).paged
    [first] = processes()
    assert (await pool.read(HANDBOOK)).paged
    assert processes() == [first]
    await pool.close()
    assert processes() == []


async def test_a_process_ends_when_no_file_comes_and_another_reads_the_next() -> None:
    pool = extractors(idle_s=0.2)
    assert (await pool.read(HANDBOOK)).paged
    await asyncio.to_thread(psutil.wait_procs, processes(), timeout=120)
    assert processes() == []
    assert (await pool.read(HANDBOOK)).paged
    await pool.close()


async def test_the_loop_goes_on_while_a_file_is_read_and_others_wait_for_a_place() -> None:
    pool = extractors(seconds=60.0)
    await pool.read(HANDBOOK)
    slow = asyncio.create_task(pool.read(SLOW))
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert not slow.done()  # it would be, had the loop waited for the file
    pool._bounds = Bounds(0.1, 1 << 30)
    with pytest.raises(QueueFull):
        await pool.read(HANDBOOK)
    assert len(processes()) == 1
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow


async def test_a_file_that_takes_too_long_is_given_up() -> None:
    pool = extractors(seconds=1.0)
    with pytest.raises(FileTooLarge, match="within 1 s"):
        await pool.read(SLOW)
    assert len(processes()) == 1  # it reads the next one
    await pool.close()


async def test_a_process_that_ends_costs_its_file_alone() -> None:
    pool = extractors()
    await pool.read(HANDBOOK)
    [running] = processes()
    running.kill()
    running.wait()
    assert (await pool.read(HANDBOOK)).paged
    slow = asyncio.create_task(pool.read(SLOW))
    while not slow.done():  # the idle one, and the one that has the file alone
        await asyncio.sleep(0.3)
        for one in processes():
            one.kill()
    with pytest.raises(FileTooLarge):
        await slow
    assert (await pool.read(HANDBOOK)).paged
    await pool.close()


async def test_a_caller_that_goes_takes_its_process_along() -> None:
    pool = extractors()
    await pool.read(HANDBOOK)
    slow = asyncio.create_task(pool.read(SLOW))
    await asyncio.sleep(0.2)
    [running] = processes()
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    running.wait(timeout=60)
    assert (await pool.read(HANDBOOK)).paged
    await pool.close()
