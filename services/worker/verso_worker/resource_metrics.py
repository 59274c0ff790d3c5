"""How much of a worker is in use, read at the moment of a scrape: hands, engines, disk."""

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
"""Channel of an engine that no channel serves, but records need."""


@dataclass(frozen=True, slots=True)
class Running:
    """One artifact's engine, as the shelf knows it.

    Attributes:
        artifact: id of the artifact, space and codec.
        channel: ``stable``, ``canary``, or ``kept`` for records that still need it.
        pid: its process, or None between two lives.
        restarts: how often it was started again.
    """

    artifact: str
    channel: str
    pid: int | None
    restarts: int


class Engines(Protocol):
    """What is asked about engines."""

    def engines(self) -> dict[str, Running]:
        """Return the engines that run, by codec id."""

    def figures(self, codec: str) -> Mapping[str, Mapping[str, float]]:
        """Return what each lane of an engine has done."""


class Places(Protocol):
    """What is asked about hands."""

    def hands(self) -> Mapping[Queue, tuple[int, int]]:
        """Return how many hands of each queue are at work, and how many there may be."""


class Usage(Collector):
    """Collects for one worker; an engine that does not answer is down, and the scrape goes on.

    Args:
        places: the desk.
        engines: the shelf.
        data: folder whose file system must not fill up.
        floor_mib: free space below which the vector store refuses to write, MiB.
    """

    def __init__(self, places: Places, engines: Engines, *, data: Path, floor_mib: int) -> None:
        self._places = places
        self._engines = engines
        self._data = data
        self._floor_mib = floor_mib

    def describe(self) -> list[Metric]:
        """Promise nothing, so that registering asks the engines nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Ask everything once."""
        yield from self._hands()
        yield from self._disk()
        yield from self._artifacts()
        yield from self._lanes()

    def _hands(self) -> Iterator[Metric]:
        most = GaugeMetricFamily("verso_worker_slots", "Slices it may hold", labels=["queue"])
        busy = GaugeMetricFamily("verso_worker_slots_busy", "Hands at work", labels=["queue"])
        for queue, (at_work, there_may_be) in self._places.hands().items():
            busy.add_metric([queue], at_work)
            most.add_metric([queue], there_may_be)
        yield most
        yield busy

    def _disk(self) -> Iterator[Metric]:
        try:
            free = shutil.disk_usage(self._data).free
        except OSError:  # no figure is better than a wrong one
            return
        yield GaugeMetricFamily(
            "verso_disk_free_bytes", "Free space where vectors and artifacts are kept", value=free
        )
        yield GaugeMetricFamily(
            "verso_disk_floor_bytes",
            "Free space below which writes are refused",
            value=self._floor_mib * _MIB,
        )

    def _artifacts(self) -> Iterator[Metric]:
        info = GaugeMetricFamily(
            "verso_artifact_info",
            "Artifacts whose engine runs, by the channel that serves it",
            labels=["model", "channel"],
        )
        restarts = CounterMetricFamily(
            "verso_engine_restarts", "Unasked ends of an engine", labels=["model"]
        )
        memory = GaugeMetricFamily(
            "verso_engine_resident_bytes", "Memory that an engine holds", labels=["model"]
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
                "verso_engine_batches", "Batches run; of a read, steps", labels=labels
            ),
            "texts": CounterMetricFamily("verso_engine_texts", "Texts begun", labels=labels),
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
    """Return the memory a process holds, proc(5); None where that cannot be known."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return None
