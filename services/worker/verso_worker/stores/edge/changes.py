"""Changes of words that their index does not have yet, in one file that grows.

To bring a change to the disk takes one sync here, and some 14 in the index. So a put waits for this
file only, and the index takes many changes at once. Each record is

    u32     length of the frame, little endian
    u32     crc32 of these four bytes
    u32     crc32 of the frame
    frame   ``put``: ids (hex), ``terms``: how many each has, ``gone``: ids of removed points; two
            blobs of terms' ids and weights (:func:`~verso_worker.stores.bm25.pack_terms`)

A record that ends beyond the file was being written when the machine stopped: it was not
acknowledged. Any other record that is not as it was written has been altered since.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from verso_core import files, frame
from verso_worker.records.points import Terms
from verso_worker.stores.bm25 import pack_terms, unpack_terms

Changes = dict[UUID, Terms | None]
"""The terms that points get, by their ids; None for a point that is removed."""

_PREFIX = struct.Struct("<III")


class ChangeLog:
    """The file. One thread at a time may call.

    Args:
        path: made by the first record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, changes: Mapping[UUID, Terms | None]) -> None:
        """Add a record; it is on the disk when this returns.

        Raises:
            OSError: it could not be written.
        """
        new = not self._path.exists()
        body = _packed(changes)
        with self._path.open("ab") as file:
            file.write(_PREFIX.pack(len(body), _crc_of_length(len(body)), zlib.crc32(body)))
            file.write(body)
            file.flush()
            os.fdatasync(file.fileno())
        if new:
            files.sync(self._path.parent)

    def clear(self) -> None:
        """Remove all records: the index has them.

        Not synced: what a power cut brings back is made again, which changes nothing.
        """
        if self._path.exists():
            os.truncate(self._path, 0)

    def read(self) -> tuple[list[Changes], bool]:
        """Return the changes of each record, oldest first, and whether one was altered.

        Nothing is read beyond an altered record. What is left of a record that was being written is
        cut off, so that the next one follows a whole one.

        Raises:
            OSError: the file cannot be read.
        """
        found: list[Changes] = []
        data = self._path.read_bytes() if self._path.exists() else b""
        at = 0
        while (start := at + _PREFIX.size) <= len(data):
            size, size_crc, crc = _PREFIX.unpack_from(data, at)
            if size_crc != _crc_of_length(size):
                if any(data[at:]):
                    return found, True
                break  # zeros, as some file systems leave them of a write that was cut
            body = data[start : start + size]
            if len(body) < size:
                break
            if zlib.crc32(body) != crc:
                return found, True
            found.append(_unpacked(body))
            at = start + size
        if at < len(data):
            os.truncate(self._path, at)
        return found, False


def _crc_of_length(size: int) -> int:
    return zlib.crc32(size.to_bytes(4, "little"))


def _packed(changes: Mapping[UUID, Terms | None]) -> bytes:
    put = {point: terms for point, terms in changes.items() if terms is not None}
    sizes, blobs = pack_terms(list(put.values()))
    gone = [point.hex for point, terms in changes.items() if terms is None]
    return frame.pack({"put": [p.hex for p in put], "terms": sizes, "gone": gone}, blobs)


def _unpacked(body: bytes) -> Changes:
    header, blobs = frame.unpack(body)
    terms = unpack_terms(header["terms"], blobs)
    put = zip((UUID(hex=one) for one in header["put"]), terms, strict=True)
    return {**dict(put), **{UUID(hex=one): None for one in header["gone"]}}
