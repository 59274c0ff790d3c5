"""Whether the files of an index of words are as they were written.

Each file of a segment ends with a checksum, which tantivy does not compare when it opens or reads
them. ``meta.json`` lists the segments.
"""

from __future__ import annotations

import errno
import json
import mmap
import struct
import zlib
from pathlib import Path

from verso_core.errors import VectorsUnavailable

_FOOTER = struct.Struct("<II")  # length of the JSON before it, and a magic number
_FOOTER_MAGIC = 1337
_PARTS = ("idx", "pos", "term", "store", "fast", "fieldnorm")  # files of a segment
_LENGTHS_END = 11  # bytes after the lengths of documents, one byte each


def fault_of(folder: Path) -> str | None:
    """Return what is missing or altered in an index's files.

    Raises:
        VectorsUnavailable: they cannot be read, and may be sound.
    """
    try:
        for one in json.loads((folder / "meta.json").read_text())["segments"]:
            name = one["segment_id"].replace("-", "")
            suffixes = list(_PARTS)
            if one["deletes"] is not None:
                suffixes.append(f"{one['deletes']['opstamp']}.del")
            for suffix in suffixes:
                size = _size_as_written(folder / f"{name}.{suffix}")
                # The list has no checksum; that of lengths tells how many documents there are.
                listed = suffix != "fieldnorm" or size == one["max_doc"] + _LENGTHS_END
                if size is None or not listed:
                    return f"{name}.{suffix} was altered"
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as exc:
        return f"{type(exc).__name__}: {exc}"
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EIO):
            raise VectorsUnavailable(f"the words in {folder} cannot be read: {exc}") from exc
        return f"{type(exc).__name__}: {exc}"
    return None


def _size_as_written(path: Path) -> int | None:
    """Return the bytes of a file before its footer; None if they have not the checksum in it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        length, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
        end = len(data) - _FOOTER.size - length
        footer = json.loads(data[end : end + length])
        with memoryview(data) as view, view[:end] as body:
            sound = magic == _FOOTER_MAGIC and zlib.crc32(body) == footer["crc"]
        return end if sound else None
