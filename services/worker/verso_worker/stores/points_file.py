"""A collection's points in a file of no engine's format, for backups of a Qdrant server.

collection.json   {"format": 1, "dim", "precision", "int8_scale", "terms"}
points            pages; each is its length (u32, little endian) and a frame whose header holds
                  ids, payloads and terms, and whose blob is the stored vectors
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import UUID

import numpy as np

from verso_core import frame
from verso_core.errors import BackupInvalid, FrameInvalid
from verso_core.jobs import Precision
from verso_worker.records.points import Point, Terms
from verso_worker.records.space import Settings, Space

SETTINGS_NAME = "collection.json"
POINTS_NAME = "points"
_FORMAT = 1
_LENGTH = struct.Struct("<I")


def write(folder: Path, made: Settings, pages: Iterable[list[Point]]) -> int:
    """Write points into a new folder, and return their number."""
    folder.mkdir()
    space = made.space
    settings = {
        "format": _FORMAT,
        "dim": space.dim,
        "precision": space.precision.value,
        "int8_scale": space.int8_scale,
        "terms": made.terms,
    }
    (folder / SETTINGS_NAME).write_text(json.dumps(settings) + "\n")
    count = 0
    with (folder / POINTS_NAME).open("wb") as file:
        for page in pages:
            header = {
                "ids": [point.id.hex for point in page],
                "payloads": [dict(point.payload) for point in page],
                "terms": [[point.terms.ids, point.terms.weights] for point in page],
            }
            data = frame.pack(header, [b"".join(space.raw(point.stored) for point in page)])
            file.write(_LENGTH.pack(len(data)) + data)
            count += len(page)
    return count


def read(folder: Path) -> tuple[Settings, Iterator[list[Point]]]:
    """Return what :func:`write` wrote.

    Raises:
        BackupInvalid: the folder holds no points, or another format.
    """
    try:
        row = json.loads((folder / SETTINGS_NAME).read_text())
        space = Space(Precision(row["precision"]), row["dim"], row["int8_scale"])
        settings = Settings(space, terms=bool(row["terms"]))
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise BackupInvalid(f"expected {SETTINGS_NAME} in {folder.name}") from exc
    if not (folder / POINTS_NAME).is_file():
        raise BackupInvalid(f"expected the points of a server in {folder.name}, got an engine's")
    return settings, _pages(folder / POINTS_NAME, space)


def _pages(path: Path, space: Space) -> Iterator[list[Point]]:
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            try:
                header, [blob] = frame.unpack(file.read(*_LENGTH.unpack(head)))
                rows = np.frombuffer(blob, space.dtype).reshape(-1, space.width)
                yield [
                    Point(UUID(hex=name), row, payload, Terms(tuple(ids), tuple(weights)))
                    for name, row, payload, (ids, weights) in zip(
                        header["ids"], rows, header["payloads"], header["terms"], strict=True
                    )
                ]
            except (struct.error, FrameInvalid, ValueError, KeyError) as exc:
                raise BackupInvalid(f"{path.parent.name}: a page of points is damaged") from exc
