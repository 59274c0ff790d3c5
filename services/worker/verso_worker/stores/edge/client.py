"""The embedded vector store as the worker sees it: calls to the store's own process.

The process is :mod:`verso_worker.stores.edge.process`; :mod:`verso_worker.stores.qdrant.store` is
the same store on a Qdrant server.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from verso_core.errors import VectorsUnavailable
from verso_core.jobs import Filter, IndexKind, Precision
from verso_core.jobs.search import Scale
from verso_core.supervise import Process
from verso_worker.ipc.child import make_child
from verso_worker.ipc.client import Client
from verso_worker.records.points import (
    Disk,
    Hit,
    Placed,
    Point,
    Sizes,
    Terms,
    check_name,
    pack_ids,
    packed,
    stacked,
    unpack_ids,
)
from verso_worker.records.space import Space, Stored, Vector
from verso_worker.stores.bm25 import pack_terms, unpack_terms

TIMEOUT_S = 60.0
"""Longest wait for a call: a collection may be closed while it is optimised, a disk be slow."""

READY_S = 120.0
"""Longest wait for the started process, which opens every collection first."""


def shard_child(
    data: Path,
    *,
    socket_path: Path,
    floor_mib: int = 256,
    index_above: int = 50_000,
    quiet_s: float = 30.0,
) -> Process:
    """Return the supervised process that owns the vector files of a folder, not yet started.

    Args:
        data: folder of the collections.
        socket_path: where the process listens; in a folder of this worker's own.
        floor_mib: free space that writes leave on the disk, MiB.
        index_above: points searched one by one before an index is built.
        quiet_s: seconds without a call before a collection may be optimised.
    """
    argv = [
        *(sys.executable, "-m", "verso_worker.stores.edge.process"),
        *("--socket", str(socket_path), "--data", str(data)),
        *("--floor-mib", str(floor_mib), "--index-above", str(index_above)),
        *("--quiet-s", str(quiet_s)),
    ]
    return make_child("vectors", argv, socket_path=socket_path, ready_timeout_s=READY_S)


class EdgeVectors:
    """A client of the store's process; any number of threads may share it.

    Implements :class:`verso_worker.rules.ports.stores.Vectors`, which says what each method raises.

    Args:
        socket_path: where the process listens.
        timeout_s: longest wait for a call, seconds.
    """

    def __init__(self, socket_path: Path, *, timeout_s: float = TIMEOUT_S) -> None:
        self._client = Client(socket_path, timeout_s, unavailable=VectorsUnavailable)

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()

    def create(
        self, name: str, *, dim: int, precision: Precision, int8_scale: float, terms: bool = False
    ) -> None:
        """Create a collection; one that exists with the same settings is left as it is."""
        self._client.call("create", _settings(name, dim, precision, int8_scale, terms=terms))

    def drop(self, name: str) -> None:
        """Remove a collection and its points; one that does not exist is no error."""
        self._client.call("drop", {"name": name})

    def mend(
        self,
        name: str,
        *,
        dim: int,
        precision: Precision,
        int8_scale: float,
        terms: bool = False,
        points: bool,
    ) -> bool:
        """Mend a collection that is lost or damaged; return whether points are to be put again."""
        settings = _settings(name, dim, precision, int8_scale, terms=terms)
        header, _ = self._client.call("mend", settings | {"points": points})
        return bool(header["lost"])

    def note_scrubbed(self, name: str, *, chunks: int, whole: bool = True) -> None:
        """Record that a scrub has looked for the points of so many chunks, all since a loss."""
        self._client.call("note_scrubbed", {"name": name, "chunks": chunks, "whole": whole})

    def missing(self, name: str) -> int:
        """Return how many points no scrub could put again."""
        header, _ = self._client.call("missing", {"name": name})
        return int(header["missing"])

    def names(self) -> list[str]:
        """Return the names of the collections."""
        header, _ = self._client.call("names")
        return list(header["names"])

    def put(self, name: str, points: Sequence[Point]) -> None:
        """Store points, all or none; they are on the disk when this returns."""
        if not points:
            return
        rows = stacked(points)
        sizes, blobs = pack_terms([point.terms for point in points])
        header = {
            "name": name,
            "ids": [point.id.hex for point in points],
            "payloads": [packed(point.payload) for point in points],
            "dtype": rows.dtype.newbyteorder("<").str,
            "dim": rows.shape[1],
            "terms": sizes,
        }
        little = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
        self._client.call("put", header, [little.tobytes(), *blobs])

    def get(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Stored]:
        """Return the stored vectors of the points that exist. Shape of each: (dim,)."""
        header, blobs = self._client.call("get", _named(name, ids))
        # The scale plays no part in reading raw bytes.
        space = Space(Precision(header["precision"]), header["dim"], 1.0)
        rows = np.frombuffer(blobs[0], space.dtype).reshape(-1, space.width)
        return {UUID(hex=point): row for point, row in zip(header["ids"], rows, strict=True)}

    def payloads(self, name: str, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return the payloads of the points that exist."""
        header, _ = self._client.call("payloads", _named(name, ids))
        return {UUID(hex=point): payload for point, payload in header["payloads"].items()}

    def terms(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Terms]:
        """Return the terms of the points whose terms the store can give back."""
        header, blobs = self._client.call("terms", _named(name, ids))
        found = unpack_terms(header["terms"], blobs)
        return {UUID(hex=point): terms for point, terms in zip(header["ids"], found, strict=True)}

    def differing(self, name: str, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms; none of a collection without terms."""
        sizes, blobs = pack_terms(list(expected.values()))
        header, _ = self._client.call(
            "differing", {**_named(name, list(expected)), "terms": sizes}, blobs
        )
        return {UUID(hex=point) for point in header["ids"]}

    def having(self, name: str, words: Sequence[int]) -> dict[int, int] | None:
        """Return how many points have each word, by its id; None where they are sparse vectors."""
        header, _ = self._client.call("having", {"name": name, "words": list(words)})
        found = header["having"]
        return None if found is None else dict(zip(words, found, strict=True))

    def page(
        self,
        name: str,
        start: UUID,
        *,
        limit: int,
        where: Filter | None = None,
        first: bool = False,
    ) -> list[Placed]:
        """Return points with their payloads, by ascending id from ``start`` on.

        Only those that pass the filter; with ``first`` only first chunks.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        asked = {"start": start.hex, "limit": limit, "where": _dumped(where), "first": first}
        header, _ = self._client.call("page", {"name": name, **asked})
        return [(UUID(hex=point), payload) for point, payload in header["points"]]

    def by_time(
        self,
        name: str,
        start: float | None,
        *,
        descending: bool,
        limit: int,
        where: Filter | None = None,
    ) -> list[Placed]:
        """Return first chunks that have a time, ordered by it, from ``start`` on (inclusive).

        The order of points of one time is the engine's own.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        asked = {"start": start, "descending": descending, "limit": limit, "where": _dumped(where)}
        header, _ = self._client.call("by_time", {"name": name, **asked})
        return [(UUID(hex=point), payload) for point, payload in header["points"]]

    def remove(self, name: str, ids: Sequence[UUID]) -> None:
        """Remove points, durably; ids that do not exist are ignored."""
        if ids:
            self._client.call("remove", _named(name, ids))

    def search(
        self,
        name: str,
        query: Vector | None,
        *,
        limit: int,
        where: Filter | None,
        terms: Terms | None = None,
        besides: Sequence[UUID] | None = None,
    ) -> list[Hit]:
        """Return the best points, best first, by vector, by terms, or by both if both are given."""
        sizes, blobs = pack_terms([] if terms is None else [terms])
        header = {
            "name": name,
            "limit": limit,
            "where": _dumped(where),
            "terms": None if terms is None else sizes,
            "besides": besides is not None,
        }
        vector = b"" if query is None else np.asarray(query, "<f4").tobytes()
        reply, _ = self._client.call("search", header, [vector, pack_ids(besides or ()), *blobs])
        scale = None if reply["scale"] is None else Scale(**reply["scale"])
        return [
            Hit(UUID(hex=point), score, payload, cosine, weight, scale)
            for point, score, payload, cosine, weight in reply["hits"]
        ]

    def neighbours(self, name: str, rows: Stored, *, limit: int) -> list[list[UUID]]:
        """Return the points nearest to each stored vector, itself included. Shape: (n, dim)."""
        little = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
        header = {
            "name": name,
            "limit": limit,
            "dtype": little.dtype.str,
            "dim": rows.shape[1],
        }
        reply, blobs = self._client.call("neighbours", header, [little.tobytes()])
        ids = unpack_ids(blobs[0])
        ends = list(accumulate(reply["counts"], initial=0))
        return [ids[start:end] for start, end in pairwise(ends)]

    def count(self, name: str, *, where: Filter | None = None, first: bool = False) -> int:
        """Count a collection's points that pass the filter; with ``first`` only first chunks.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        asked = {"name": name, "where": _dumped(where), "first": first}
        header, _ = self._client.call("count", asked)
        return int(header["count"])

    def index(self, name: str, fields: Mapping[str, IndexKind]) -> None:
        """Index metadata fields, those of a large collection in a quiet moment.

        Raises:
            CollectionUnknown: there is no such collection.
            DiskFull: free space would fall below the floor.
        """
        if fields:
            self._client.call("index", {"name": name, "fields": dict(fields)})

    def copy(self, name: str, folder: Path) -> int:
        """Copy a collection's files into a new local folder and return the number of points.

        Writes to it wait meanwhile, reads and searches continue.

        Raises:
            DiskFull: a copy would leave less free space than the floor.
            VectorsUnavailable: the copy failed.
        """
        header, _ = self._client.call("copy", {"name": name, "folder": str(folder)})
        return int(header["count"])

    def sizes(self, name: str) -> Sizes:
        """Return what a collection has in this store."""
        header, _ = self._client.call("sizes", {"name": name})
        disk = Disk(**header["disk"])
        return Sizes(header["points"], header["vectors"], header["terms"], disk)


def _settings(
    name: str, dim: int, precision: Precision, int8_scale: float, *, terms: bool
) -> dict[str, Any]:
    return {
        "name": check_name(name),
        "dim": dim,
        "precision": precision.value,
        "int8_scale": int8_scale,
        "terms": terms,
    }


def _dumped(where: Filter | None) -> dict[str, Any] | None:
    return None if where is None else where.model_dump(mode="json")


def _named(name: str, ids: Sequence[UUID]) -> dict[str, Any]:
    return {"name": name, "ids": [point.hex for point in ids]}
