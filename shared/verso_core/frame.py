"""A frame: one JSON header and any number of raw byte blobs, in one byte string.

Slice payloads and results in the ledger, and messages to the worker's child processes, are frames:
texts and vectors are sent as bytes, and the JSON stays small.

    offset  size  field
    0       1     0x56
    1       4     h, length of the header, little endian
    5       h     header: one JSON object, ASCII only
    5+h     4     n, number of blobs
    ..      4n    length of each blob
    ..            the blobs, one after another
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from verso_core.errors import FrameInvalid

_MAGIC = 0x56
_PREFIX = struct.Struct("<BI")
_COUNT = struct.Struct("<I")

Bytes = bytes | bytearray | memoryview


def pack(header: Mapping[str, Any], blobs: Sequence[Bytes] = ()) -> bytes:
    """Join a header and its blobs.

    The header is ASCII with escapes, so that a lone surrogate in a string reaches the reader
    unchanged.
    """
    head = json.dumps(header, separators=(",", ":"), allow_nan=False).encode("ascii")
    sizes = struct.pack(f"<{len(blobs)}I", *(memoryview(blob).nbytes for blob in blobs))
    return b"".join([_PREFIX.pack(_MAGIC, len(head)), head, _COUNT.pack(len(blobs)), sizes, *blobs])


def header_size(data: Bytes) -> int:
    """Return how many bytes of a frame its header and all before it take; 0 of fewer than five."""
    if len(data) < _PREFIX.size:
        return 0
    return _PREFIX.size + int(_PREFIX.unpack_from(data, 0)[1])


def header(data: Bytes) -> dict[str, Any]:
    """Return the header of a frame of which the beginning is known.

    Raises:
        FrameInvalid: the bytes end before the header does, or are no frame.
    """
    try:
        found = json.loads(bytes(data[_PREFIX.size : header_size(data)]))
    except ValueError as exc:
        raise FrameInvalid(f"expected the beginning of a frame, got {len(data)} bytes") from exc
    if not isinstance(found, dict):
        raise FrameInvalid(f"expected a JSON object as header, got {type(found).__name__}")
    return found


def unpack(data: Bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Split a frame into its header and its blobs.

    Raises:
        FrameInvalid: the bytes are not exactly one frame.
    """
    view = memoryview(data).cast("B")
    try:
        magic, head_size = _PREFIX.unpack_from(view, 0)
        if magic != _MAGIC:
            raise FrameInvalid(f"expected a frame starting with 0x56, got 0x{magic:02x}")
        start = _PREFIX.size
        header = json.loads(bytes(view[start : start + head_size]))
        offset = start + head_size
        (count,) = _COUNT.unpack_from(view, offset)
        offset += _COUNT.size
        sizes = struct.unpack_from(f"<{count}I", view, offset)
    except (struct.error, ValueError) as exc:
        raise FrameInvalid(f"truncated or malformed frame of {view.nbytes} bytes") from exc
    if not isinstance(header, dict):
        raise FrameInvalid(f"expected a JSON object as header, got {type(header).__name__}")
    offset += 4 * count
    if offset + sum(sizes) != view.nbytes:
        raise FrameInvalid(f"expected {offset + sum(sizes)} bytes, got {view.nbytes}")
    blobs = []
    for size in sizes:
        blobs.append(bytes(view[offset : offset + size]))
        offset += size
    return header, blobs
