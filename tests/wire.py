"""Slices and results as plain objects: what stands in the frames, said without the contracts.

Tests build the payloads that a gateway writes, and look at the results that a worker commits, in
the form on the wire. A contract that changes that form fails them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from verso_core import frame
from verso_core.jobs import SLICE_BYTES, SLICE_ITEMS, Kind, SliceSpec


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a slice: its header object and, where it has one, its blob."""

    header: dict[str, Any]
    blob: bytes | None = None

    @property
    def rejected(self) -> Any:
        """Return the error that the gateway found."""
        return self.header.get("rejected")


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice as it is written."""

    kind: Kind
    params: dict[str, Any]
    items: tuple[Item, ...]


def cut(
    kind: Kind,
    params: Mapping[str, Any],
    items: Iterable[Item],
    *,
    max_items: int = SLICE_ITEMS,
    max_bytes: int = SLICE_BYTES,
) -> Iterator[SliceSpec]:
    """Cut items into slices as the version before did: without a version number."""
    batch: list[Item] = []
    size = 0
    for item in items:
        item_bytes = len(item.blob or b"")
        if batch and (len(batch) >= max_items or size + item_bytes > max_bytes):
            yield _spec(kind, params, batch)
            batch, size = [], 0
        batch.append(item)
        size += item_bytes
    if batch:
        yield _spec(kind, params, batch)


def _spec(kind: Kind, params: Mapping[str, Any], items: list[Item]) -> SliceSpec:
    blobs: list[bytes] = []
    headers = []
    for item in items:
        header = dict(item.header)
        if item.blob is not None:
            header["blob"] = len(blobs)
            blobs.append(item.blob)
        headers.append(header)
    payload = frame.pack({"kind": kind, "params": dict(params), "items": headers}, blobs)
    return SliceSpec(payload=payload, items=len(items))


def read_slice(payload: bytes) -> Slice:
    """Read a payload."""
    header, blobs = frame.unpack(payload)
    items = []
    for item in header["items"]:
        index = item.get("blob")
        items.append(Item(item, None if index is None else blobs[index]))
    return Slice(Kind(header["kind"]), header["params"], tuple(items))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a slice: one object for each item, and the blobs they point into."""

    items: list[dict[str, Any]]
    blobs: list[bytes] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)

    def add_blob(self, blob: bytes) -> int:
        """Append a blob and return the index by which an item names it."""
        self.blobs.append(blob)
        return len(self.blobs) - 1

    @property
    def ok(self) -> int:
        """Count the items that succeeded."""
        return sum(1 for item in self.items if item["ok"])

    def pack(self) -> bytes:
        """Write the result as a frame."""
        return frame.pack({"items": self.items, "timings_ms": self.timings_ms}, self.blobs)

    @classmethod
    def unpack(cls, data: bytes) -> Result:
        """Read a result."""
        header, blobs = frame.unpack(data)
        return cls(items=header["items"], blobs=blobs, timings_ms=header["timings_ms"])
