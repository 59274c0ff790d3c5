"""Facts about what a worker shows of its use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry

from verso_core.errors import EngineUnavailable
from verso_core.jobs import Queue
from verso_worker.engine.lanes import Tally
from verso_worker.resource_metrics import ResourceMetrics, Running


class Dispatcher:
    """Two of three bulk slots are busy."""

    def slots(self) -> dict[Queue, tuple[int, int]]:
        return {Queue.BULK: (2, 3)}


class Store:
    """One engine that answers, and one that died."""

    def engines(self) -> dict[str, Running]:
        return {
            "new": Running("s-new", "stable", pid=os.getpid(), restarts=0),
            "old": Running("s-old", "kept", pid=None, restarts=2),
        }

    def figures(self, codec: str) -> Mapping[str, Mapping[str, float]]:
        if codec == "old":
            raise EngineUnavailable("away")
        tally = Tally()
        with tally.batch(texts=3, tokens=40):
            pass
        tally.failed()
        return {"encode": {**tally.figures(), "waiting": 7}}


def test_a_scrape_shows_slots_disk_and_engines_and_outlives_a_dead_one() -> None:
    registry = CollectorRegistry()
    registry.register(ResourceMetrics(Dispatcher(), Store(), data=Path("/"), floor_mib=3))
    value = registry.get_sample_value
    lane = {"model": "s-new", "lane": "encode"}
    assert value("verso_worker_slots", {"queue": "bulk"}) == 3
    assert value("verso_worker_slots_busy", {"queue": "bulk"}) == 2
    assert value("verso_disk_floor_bytes") == 3 * 2**20
    assert (value("verso_disk_free_bytes") or 0) > 0
    assert value("verso_artifact_info", {"model": "s-old", "channel": "kept"}) == 1
    assert value("verso_engine_up", {"model": "s-new"}) == 1
    assert value("verso_engine_up", {"model": "s-old"}) == 0
    assert value("verso_engine_restarts_total", {"model": "s-old"}) == 2
    assert (value("verso_engine_resident_bytes", {"model": "s-new"}) or 0) > 2**20
    assert value("verso_engine_resident_bytes", {"model": "s-old"}) is None
    assert value("verso_engine_texts_total", lane) == 3
    assert value("verso_engine_tokens_total", lane) == 40
    assert value("verso_engine_failures_total", lane) == 1
    assert value("verso_engine_waiting_texts", lane) == 7


def test_a_folder_that_is_gone_shows_no_free_space_at_all() -> None:
    registry = CollectorRegistry()
    registry.register(ResourceMetrics(Dispatcher(), Store(), data=Path("/nowhere"), floor_mib=3))
    assert registry.get_sample_value("verso_disk_free_bytes") is None
