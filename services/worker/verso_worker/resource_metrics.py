"""What a worker has at the moment of a scrape: slots, engines, disk.

``metrics`` counts what it does; docs/reference/metrics.md lists the names and labels of both.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from verso_core.errors import VersoError
from verso_core.jobs import Queue

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20

KEPT = "kept"
"""Channel label of an engine that only old records need."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running engine.

    Attributes:
        artifact: id of the artifact, space and codec.
        channel: ``stable``, ``canary``, or ``kept`` for records that still need it.
        pid: its process, or None between an end and a restart.
        restarts: how often it was restarted.
    """

    artifact: str
    channel: str
    pid: int | None
    restarts: int


class Engines(Protocol):
    """The engines of a worker."""

    def engines(self) -> dict[str, Running]:
        """Return the engines that run, by codec id."""

    def figures(self, codec: str) -> Mapping[str, Mapping[str, float]]:
        """Return the counts of each lane of an engine."""


class SlotCounts(Protocol):
    """The dispatcher, as far as its slots are counted."""

    def slots(self) -> Mapping[Queue, tuple[int, int]]:
        """Return how many slots of each queue are executing, and how many there are."""


class ResourceMetrics(Collector):
    """Slots, engines and disk of one worker, read at the moment of a scrape.

    An engine that does not answer is reported as down; the scrape continues.

    Args:
        slots: the dispatcher.
        engines: the artifact store.
        data: folder whose file system must not fill up.
        floor_mib: free space below which the vector store refuses to write, MiB.
    """

    def __init__(self, slots: SlotCounts, engines: Engines, *, data: Path, floor_mib: int) -> None:
        self._slot_counts = slots
        self._engines = engines
        self._data = data
        self._floor_mib = floor_mib

    def describe(self) -> list[Metric]:
        """Return nothing, so that registration does not call the engines."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all resource metrics."""
        yield from self._slots()
        yield from self._disk()
        yield from self._artifacts()
        yield from self._lanes()

    def _slots(self) -> Iterator[Metric]:
        most = GaugeMetricFamily(
            "verso_worker_slots", "Slices that may be executed at once", labels=["queue"]
        )
        busy = GaugeMetricFamily(
            "verso_worker_slots_busy", "Slots that execute a slice", labels=["queue"]
        )
        for queue, (executing, limit) in self._slot_counts.slots().items():
            busy.add_metric([queue], executing)
            most.add_metric([queue], limit)
        yield most
        yield busy

    def _disk(self) -> Iterator[Metric]:
        try:
            free = shutil.disk_usage(self._data).free
        except OSError:  # no value is better than a wrong one
            return
        yield GaugeMetricFamily(
            "verso_disk_free_bytes", "Free space of the data folder", value=free
        )
        yield GaugeMetricFamily(
            "verso_disk_floor_bytes",
            "Free space below which writes are refused",
            value=self._floor_mib * _MIB,
        )

    def _artifacts(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "verso_artifact_info",
            "Artifacts whose engine runs, by channel",
            labels=["model", "channel"],
        )
        restarts = CounterMetricFamily(
            "verso_engine_restarts", "Restarts of an engine", labels=["model"]
        )
        memory = GaugeMetricFamily(
            "verso_engine_resident_bytes", "Resident memory of an engine", labels=["model"]
        )
        for engine in self._engines.engines().values():
            info.add_metric([engine.artifact, engine.channel], 1)
            restarts.add_metric([engine.artifact], engine.restarts)
            if engine.pid is not None and (resident := _resident_bytes(engine.pid)) is not None:
                memory.add_metric([engine.artifact], resident)
        yield info
        yield restarts
        yield memory

    def _lanes(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("verso_engine_up", "Whether an engine answers", labels=["model"])
        labels = ["model", "lane"]
        counters = {
            "batches": CounterMetricFamily(
                "verso_engine_batches", "Batches run; for reads, decoding steps", labels=labels
            ),
            "texts": CounterMetricFamily("verso_engine_texts", "Texts started", labels=labels),
            "failed": CounterMetricFamily(
                "verso_engine_failures", "Texts that ended in an error", labels=labels
            ),
            "tokens": CounterMetricFamily(
                "verso_engine_tokens", "Tokens given to the graph, without padding", labels=labels
            ),
            "busy_s": CounterMetricFamily(
                "verso_engine_busy_seconds", "Time spent running batches", labels=labels
            ),
        }
        waiting = GaugeMetricFamily("verso_engine_waiting_texts", "Texts that wait", labels=labels)
        for codec, engine in self._engines.engines().items():
            lanes = self._figures(codec)
            up.add_metric([engine.artifact], lanes is not None)
            for lane, figures in (lanes or {}).items():
                for name, family in counters.items():
                    family.add_metric([engine.artifact, lane], figures[name])
                waiting.add_metric([engine.artifact, lane], figures["waiting"])
        yield up
        yield from counters.values()
        yield waiting

    def _figures(self, codec: str) -> Mapping[str, Mapping[str, float]] | None:
        try:
            return self._engines.figures(codec)
        except VersoError:
            return None


def _resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process (proc(5)), or None if it cannot be read."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None
