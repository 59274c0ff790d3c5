"""How a Qdrant cluster is asked to keep and to read points, and what is said where it does not.

1. New collections are made with the settings' replication factor, number of shards and write
   consistency factor. What is unset is the server's default.
2. An existing collection is never changed: moving replicas takes disk and network, and when is the
   operator's choice. What differs is logged once and stands in the worker's state.
3. Each read asks as many replicas as the settings say.

Nothing here imports the server's client, which takes a second to load.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Protocol

from verso_core.errors import CollectionUnknown, VersoError
from verso_worker.settings import Replication

_EVERY_S = 60.0
_STOP_S = 5.0  # a server that hangs does not hold up the end of a worker
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """How a collection is kept by the server.

    factor: the replication factor it was made with.
    shards: how many shards it has.
    write_consistency: its write consistency factor.
    active: active replicas of each shard, as the node that answers knows them.
    """

    factor: int
    shards: int
    write_consistency: int
    active: tuple[int, ...]


def differences(asked: Replication, kept: Kept) -> list[str]:
    """Return in what a collection differs from what is asked; empty if in nothing."""
    found = []
    for name, wanted, got in (
        ("replication factor", asked.factor, kept.factor),
        ("shard number", asked.shards, kept.shards),
        ("write consistency factor", asked.write_consistency, kept.write_consistency),
    ):
        if wanted is not None and wanted != got:
            found.append(f"expected {name} {wanted}, got {got}")
    wanted = max(asked.factor or 1, kept.factor)
    few = [count for count in kept.active if count < wanted]
    if few:
        found.append(
            f"expected {wanted} active replicas of each shard, "
            f"{len(few)} of {len(kept.active)} shards have fewer, {min(few)} at the least"
        )
    return found


class ReplicationReport:
    """The collections that differ from the settings; any number of threads may read it.

    lines: one a collection, with its name.
    """

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()


class Collections(Protocol):
    """The collections of a server."""

    def names(self) -> list[str]:
        """Return their names."""
        ...

    def differences(self, name: str) -> list[str]:
        """Return in what one differs from what is asked."""
        ...


class ReplicationWatch:
    """Compares the collections with the settings, at once and every minute.

    Args:
        collections: the server's.
        report: receives what differs.
    """

    def __init__(self, collections: Collections, report: ReplicationReport) -> None:
        self._collections = collections
        self._report = report
        self._known: dict[str, list[str]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replication", daemon=True)

    def start(self) -> None:
        """Compare in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop comparing."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def step(self) -> None:
        """Compare all collections, and log what has changed since the last time.

        Raises:
            VectorsUnavailable: the server does not answer; the report stays as it is.
        """
        found = {}
        for name in self._collections.names():
            try:
                found[name] = self._collections.differences(name)
            except CollectionUnknown:
                continue  # it was deleted after it was listed
        for name, differ in found.items():
            before = self._known.get(name, [])
            if differ and differ != before:
                _log.warning("collection %s is not kept as set: %s", name, "; ".join(differ))
            elif before and not differ:
                _log.info("collection %s is kept as set", name)
        self._known = found
        self._report.lines = tuple(
            f"{name}: {'; '.join(differ)}" for name, differ in sorted(found.items()) if differ
        )

    def _run(self) -> None:
        while True:
            try:
                self.step()
            except VersoError as error:
                _log.warning("replication not compared: %s", error.detail)
            except Exception:  # noqa: BLE001 - points are still written and read
                if not self._over.is_set():  # else the client was closed meanwhile
                    _log.exception("replication not compared")
            if self._over.wait(_EVERY_S):
                return
