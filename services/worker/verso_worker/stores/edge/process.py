"""The process that owns the embedded vector store: ``python -m verso_worker.stores.edge.process``.

It is a process of its own because the engine holds the interpreter lock while it flushes or
optimises, and dies by SIGBUS when the disk is full. It alone may open the files:

    DIR/lock           held (flock) as long as the process lives
    DIR/<collection>   one folder for each collection (``edge.collection``)
    DIR/.<anything>    a collection that is being made or removed; deleted at the start

The lock is taken before anything else is opened: a second process that merely *opens* the files
breaks the first one's next flush.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from verso_core import files, telemetry, tracing
from verso_core.errors import (
    CollectionExists,
    DiskFull,
    VectorInvalid,
    VectorsDamaged,
    VectorsUnavailable,
    VersoError,
)
from verso_core.frame import Bytes
from verso_core.interpreter import end_at_once
from verso_core.jobs import Filter, IndexKind, Precision
from verso_worker.ipc.child import refuse
from verso_worker.ipc.server import Handler, Server
from verso_worker.records.points import (
    TERM_BYTES,
    Placed,
    check_name,
    pack_ids,
    unknown,
    unpack_ids,
)
from verso_worker.records.space import Settings, Space
from verso_worker.stores.bm25 import pack_terms, unpack_terms
from verso_worker.stores.edge import damage
from verso_worker.stores.edge.collection import EdgeCollection
from verso_worker.stores.edge.commit import Committer, end_process
from verso_worker.stores.edge.optimise import Runner
from verso_worker.stores.edge.words import Writers
from verso_worker.stores.filters import node_of

LOCK_NAME = "lock"
HANDLERS = 64
"""Concurrent calls; many, because most of them wait for a flush together."""

_PAYLOAD_BYTES = 512  # assumed size of a payload, which is stored in blocks of 128 bytes
_SETTINGS_BYTES = 1 << 13  # of a collection without points
_FILES_BYTES = 1 << 26  # assumed size of the files that the first points are put into
_log = logging.getLogger(__name__)

Reply = tuple[Mapping[str, Any], Sequence[Bytes]]


@dataclass(frozen=True, slots=True)
class Limits:
    """When the process refuses writes and when it optimises.

    Args:
        floor_bytes: free space that writes must leave on the disk.
        index_above: points searched one by one before an index is built.
        quiet_s: seconds without any call before a collection may be optimised.
    """

    floor_bytes: int = 256 << 20
    index_above: int = 50_000
    quiet_s: float = 30.0


class Shard:
    """The collections in one folder.

    Args:
        folder: created if it is missing; locked until :meth:`close`.
        limits: see :class:`Limits`.

    Raises:
        VectorsUnavailable: another process holds the folder, or this one may not open a file.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._limits = limits
        self._lock = _locked(folder / LOCK_NAME)
        self._runner = Runner(self._lock)
        self._administration = threading.Lock()
        self._last_call = time.monotonic()
        for leftover in folder.glob(".*"):
            shutil.rmtree(leftover)
        self._writers = Writers()
        self._collections: dict[str, EdgeCollection] = {}
        self._damaged: dict[str, str] = {}
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                self._open(path.name)
        self._committer = Committer(
            free_bytes=lambda: _free_bytes(folder),
            floor_bytes=limits.floor_bytes,
            idle_s=limits.quiet_s,
            idle=self._idle,
            fatal=end_process,
        )
        self._committer.start()

    def _opened(self, folder: Path) -> EdgeCollection:
        index_above = self._limits.index_above
        return EdgeCollection(folder, index_above=index_above, writers=self._writers)

    def _open(self, name: str) -> None:
        """Open a collection; one that cannot be opened leaves the others served."""
        try:
            if damage.is_broken(self._folder / name):
                raise VectorsDamaged(f"collection {name!r} has lost files of its points")
            opened = self._opened(self._folder / name)
        except VectorsDamaged as error:
            _log.error("collection %s is not served: %s", name, error.detail)
            self._damaged = {**self._damaged, name: error.detail}
        else:
            self._damaged = {n: fault for n, fault in self._damaged.items() if n != name}
            self._collections = {**self._collections, name: opened}

    def close(self) -> None:
        """Finish the running writes, close the files and release the folder."""
        self._runner.stop()
        self._committer.close()
        for collection in self._collections.values():
            collection.close()
        os.close(self._lock)

    def handlers(self) -> dict[str, Handler]:
        """Return the operations that the socket offers."""
        offered: dict[str, Handler] = {
            "create": self._create,
            "drop": self._drop,
            "mend": self._mend,
            "note_scrubbed": self._note_scrubbed,
            "missing": self._missing,
            "names": self._names,
            "put": self._put,
            "get": self._get,
            "payloads": self._payloads,
            "terms": self._terms,
            "differing": self._differing,
            "having": self._having,
            "page": self._page,
            "by_time": self._by_time,
            "index": self._index,
            "remove": self._remove,
            "search": self._search,
            "neighbours": self._neighbours,
            "count": self._count,
            "sizes": self._sizes,
            "copy": self._copy,
        }
        return {name: self._recording_time(handler) for name, handler in offered.items()}

    def _create(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        name, wanted = check_name(header["name"]), _settings(header)
        with self._administration:
            if name in self._damaged:
                raise VectorsDamaged(self._damaged[name])
            if name in self._collections:
                there = self._collections[name].settings
                if there != wanted:
                    raise CollectionExists(f"expected {name!r} with {wanted}, got {there}")
                return {}, []
            self._committer.check_room(_SETTINGS_BYTES)
            draft = self._folder / f".{name}.{uuid4().hex}"
            EdgeCollection.create(draft, wanted)
            draft.rename(self._folder / name)
            files.sync(self._folder)
            opened = self._opened(self._folder / name)
            self._collections = {**self._collections, name: opened}
        return {}, []

    def _drop(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        name = header["name"]
        with self._administration:
            if name not in self._collections and name not in self._damaged:
                return {}, []
            self._close(name)
            self._damaged = {n: fault for n, fault in self._damaged.items() if n != name}
            trash = self._folder / f".{name}.{uuid4().hex}"
            (self._folder / name).rename(trash)
            files.sync(self._folder)
            shutil.rmtree(trash)
        return {}, []

    def _close(self, name: str) -> None:
        collection = self._collections.get(name)
        if collection is not None:
            self._collections = {n: c for n, c in self._collections.items() if n != name}
            self._committer.alone(collection.close)

    def _mend(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        """Mend a collection that is lost or damaged; return whether points are to be put again."""
        name, folder = check_name(header["name"]), self._folder / header["name"]
        with self._administration:
            if name not in self._collections:
                _log.error("collection %s is lost or damaged, and mended as far as it goes", name)
                self._committer.check_room(_SETTINGS_BYTES)
                try:
                    damage.mend(folder, _settings(header), points=header["points"])
                except OSError as exc:
                    fault = f"collection {name!r} is not mended: {exc.strerror} ({exc.filename})"
                    self._damaged = {**self._damaged, name: fault}
                    raise VectorsDamaged(fault) from exc
                self._open(name)
        return {"lost": bool(self._collection(header).lost)}, []

    def _note_scrubbed(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        collection = self._collection(header)
        if header["whole"] or not collection.lost:
            collection.lost.note_scrubbed(max(0, header["chunks"] - collection.count()))
        return {}, []

    def _missing(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        return {"missing": self._collection(header).lost.missing}, []

    def _names(self, _: dict[str, Any], __: list[bytes]) -> Reply:
        return {"names": sorted({*self._collections, *self._damaged})}, []

    def _put(self, header: dict[str, Any], blobs: list[bytes]) -> Reply:
        collection = self._collection(header)
        ids = _ids(header)
        dtype, dim = np.dtype(header["dtype"]), int(header["dim"])
        if len(blobs) != 3 or len(blobs[0]) != len(ids) * dim * dtype.itemsize:
            raise VectorInvalid(f"expected {len(ids)} vectors of {dim} {dtype.name}")
        rows = np.frombuffer(blobs[0], dtype).reshape(len(ids), dim)
        terms = unpack_terms(header["terms"], blobs[1:])
        points = collection.prepare(ids, rows, payloads=header["payloads"], terms=terms)
        per_point = collection.space.size_bytes + _PAYLOAD_BYTES
        self._committer.write(
            collection,
            lambda: collection.put(points),
            size_bytes=len(ids) * per_point
            + 2 * TERM_BYTES * sum(header["terms"])
            + collection.spare_bytes
            + (_FILES_BYTES if collection.empty else 0),
        )
        return {}, []

    def _get(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        collection = self._collection(header)
        found, rows = collection.get(_ids(header))
        space = collection.space
        reply = {
            "ids": [point.hex for point in found],
            "precision": space.precision.value,
            "dim": space.dim,
        }
        return reply, [space.raw(rows)]

    def _payloads(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        payloads = self._collection(header).payloads(_ids(header))
        return {"payloads": {point.hex: payload for point, payload in payloads.items()}}, []

    def _terms(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        found = self._collection(header).terms(_ids(header))
        sizes, blobs = pack_terms(list(found.values()))
        return {"ids": [point.hex for point in found], "terms": sizes}, blobs

    def _differing(self, header: dict[str, Any], blobs: list[bytes]) -> Reply:
        expected = zip(_ids(header), unpack_terms(header["terms"], blobs), strict=True)
        found = self._collection(header).differing(dict(expected))
        return {"ids": [point.hex for point in found]}, []

    def _having(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        return {"having": self._collection(header).having(header["words"])}, []

    def _page(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        start, limit = UUID(hex=header["start"]), header["limit"]
        passing = node_of(_filter(header), first=header["first"])
        return _placed(self._collection(header).page(start, limit=limit, passing=passing))

    def _by_time(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        found = self._collection(header).by_time(
            header["start"],
            descending=header["descending"],
            limit=header["limit"],
            passing=node_of(_filter(header), first=True),
        )
        return _placed(found)

    def _index(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        collection = self._collection(header)
        fields = {key: IndexKind(kind) for key, kind in header["fields"].items()}
        self._committer.write(
            collection,
            lambda: collection.index(fields),
            size_bytes=len(fields) * _PAYLOAD_BYTES * collection.count(),
        )
        return {}, []

    def _remove(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        collection = self._collection(header)
        ids = _ids(header)
        self._committer.write(collection, lambda: collection.remove(ids), size_bytes=0)
        return {}, []

    def _search(self, header: dict[str, Any], blobs: list[bytes]) -> Reply:
        query = np.frombuffer(blobs[0], "<f4") if blobs[0] else None
        sizes = header["terms"]
        terms = None if sizes is None else unpack_terms(sizes, blobs[2:])[0]
        hits = self._collection(header).search(
            query,
            terms=terms,
            limit=header["limit"],
            where=_filter(header),
            besides=unpack_ids(blobs[1]) if header["besides"] else None,
        )
        rows = [[hit.id.hex, hit.score, hit.payload, hit.cosine, hit.weight] for hit in hits]
        scale = hits[0].scale if hits else None
        return {"hits": rows, "scale": None if scale is None else scale.public()}, []

    def _neighbours(self, header: dict[str, Any], blobs: list[bytes]) -> Reply:
        rows = np.frombuffer(blobs[0], header["dtype"]).reshape(-1, int(header["dim"]))
        found = self._collection(header).neighbours(rows, limit=header["limit"])
        ids = pack_ids(point for one in found for point in one)
        return {"counts": [len(one) for one in found]}, [ids]

    def _count(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        passing = node_of(_filter(header), first=header["first"])
        return {"count": self._collection(header).count(passing)}, []

    def _sizes(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        return asdict(self._collection(header).sizes()), []

    def _copy(self, header: dict[str, Any], _: list[bytes]) -> Reply:
        """Copy a collection's files into a new folder while no write is under way."""
        collection = self._collection(header)
        target = Path(header["folder"])
        needed, free = collection.used_bytes(), _free_bytes(target.parent)
        if free - needed < self._limits.floor_bytes:
            raise DiskFull(f"expected {needed} bytes free above the floor for a copy, got {free}")
        counts: list[int] = []
        self._committer.alone(lambda: counts.append(collection.copy(target)))
        return {"count": counts[0]}, []

    def _collection(self, header: Mapping[str, Any]) -> EdgeCollection:
        collection = self._collections.get(header["name"])
        if collection is None:
            if header["name"] in self._damaged:
                raise VectorsDamaged(self._damaged[header["name"]])
            raise unknown(header["name"])
        return collection

    def _recording_time(self, handler: Handler) -> Handler:
        """Record the time of each call: optimising waits until there was none for a while."""

        def recorded(header: dict[str, Any], blobs: list[bytes]) -> Reply:
            self._last_call = time.monotonic()
            return handler(header, blobs)

        return recorded

    def _idle(self) -> None:
        """Optimise one collection that needs it, in the committer's thread: no write is running."""
        for collection in self._collections.values():
            collection.end_merges()
        if time.monotonic() - self._last_call < self._limits.quiet_s:
            return
        for collection in self._collections.values():
            room = _free_bytes(self._folder) - self._limits.floor_bytes
            if _needs_optimising(collection) and room > 2 * collection.used_bytes():
                start = time.monotonic()
                done = collection.optimise(self._runner)
                took_s = time.monotonic() - start
                state = "optimised" if done else "not optimised: the optimiser failed"
                _log.info("collection %s %s in %.1f s", collection.name, state, took_s)
                return


def serve(folder: Path, limits: Limits, *, socket_path: Path) -> None:
    """Serve a folder until SIGTERM or SIGINT."""
    with _refusing(socket_path):
        shard = Shard(folder, limits)
    server = Server(socket_path, shard.handlers(), threads=HANDLERS)

    def stop(*_: object) -> None:
        server.close()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server.serve_forever()
    shard.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Own the vector files of one folder.")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--floor-mib", type=int, default=256, help="room left on the disk")
    parser.add_argument("--index-above", type=int, default=50_000, help="points without an index")
    parser.add_argument("--quiet-s", type=float, default=30.0, help="wait before optimising")
    given = parser.parse_args(arguments)
    telemetry.configure("vectors")
    tracing.configure("vectors")
    limits = Limits(
        floor_bytes=given.floor_mib << 20, index_above=given.index_above, quiet_s=given.quiet_s
    )
    serve(given.data, limits, socket_path=given.socket)


@contextlib.contextmanager
def _refusing(socket_path: Path) -> Iterator[None]:
    try:
        yield
    except VersoError as error:
        refuse(socket_path, error)


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise VectorsUnavailable(
            f"vector folder {path.parent} is held by another process (pid {holder})"
        ) from exc
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
    return descriptor


def _needs_optimising(collection: EdgeCollection) -> bool:
    try:
        return collection.needs_optimising()
    except VectorsDamaged:
        return False


def _free_bytes(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def _settings(header: Mapping[str, Any]) -> Settings:
    space = Space(Precision(header["precision"]), header["dim"], header["int8_scale"])
    return Settings(space, terms=header["terms"])


def _filter(header: Mapping[str, Any]) -> Filter | None:
    where = header["where"]
    return None if where is None else Filter.model_validate(where)


def _placed(found: Sequence[Placed]) -> Reply:
    return {"points": [[point.hex, payload] for point, payload in found]}, []


def _ids(header: Mapping[str, Any]) -> list[UUID]:
    return [UUID(hex=point) for point in header["ids"]]


if __name__ == "__main__":
    end_at_once()
    main()
