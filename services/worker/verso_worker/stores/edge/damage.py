"""What can be made of a collection whose files were lost or damaged while nothing had them open.

    points-lost    in the folder: points are missing that no scrub has looked for yet
    points-missing how many points no scrub could put again
    aside/         parts of segments that the engine cannot open, for a person who has better copies

Nothing that may hold points is deleted. What is missing is put again by the scrub, from the texts.
Of the engine's files these were found by trying each one, missing, empty and cut:

1. Without ``edge_config.json`` it opens the segments all the same; a damaged one stops it.
2. A file of vectors that is missing makes every search fail. Zeros in its place are vectors that
   have not their records' hashes, and the others stay as they are. Without their number the engine
   writes zeros over all: each point has one. So both are looked for before the engine opens a
   folder.
3. Payloads without a page make every search fail. Without all their files they are empty.
4. A segment that cannot be opened can be without its graph if its description says that it has
   none, without its indexes of payloads, without its payloads, or without its vectors; else the
   others are opened without it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from verso_core import files
from verso_core.errors import VectorsDamaged, VectorsUnavailable
from verso_worker.records.space import Settings
from verso_worker.stores.edge.settings import (
    ENGINE_NAME,
    TIMES,
    Description,
    read_description,
    write_description,
)
from verso_worker.stores.edge.shard import SEGMENTS_NAME, loaded
from verso_worker.stores.edge.words import WORDS_NAME

ASIDE_NAME = "aside"
LOST_NAME = "points-lost"
MISSING_NAME = "points-missing"

_CONFIG_NAME = "edge_config.json"
_CHUNKS = ("vector_storage/vectors", "vector_storage/tq_vectors")  # of int8 and float16; of int4
_VECTORS, _PAYLOADS, _INDEXES = "vector_storage", "payload_storage", "payload_index"
_GRAPH = "vector_index"
_WITHOUT = (
    *((), (_GRAPH,), (_INDEXES,), (_GRAPH, _INDEXES)),
    *((_INDEXES, _PAYLOADS), (_INDEXES, _VECTORS)),
)
_SEGMENT_NAME = "segment.json"
_IN_ONE_FILE = ("InRamMmap", "Mmap")
_NUMBER_BYTES = 8  # of a count of vectors, and of a point's version


class LostPoints:
    """What is known of points that a collection has lost.

    Args:
        folder: the collection's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._any = (folder / LOST_NAME).exists()

    def __bool__(self) -> bool:
        """Whether points are missing that no scrub has looked for yet."""
        return self._any

    @property
    def missing(self) -> int:
        """Number of points that no scrub could put again."""
        try:
            return int((self._folder / MISSING_NAME).read_bytes())
        except (OSError, ValueError):
            return 0

    def note_scrubbed(self, missing: int) -> None:
        """Record that a scrub has looked for all points, and how many it could not put again."""
        if missing != self.missing:
            files.replace(self._folder / MISSING_NAME, b"%d" % missing)
        (self._folder / LOST_NAME).unlink(missing_ok=True)
        self._any = False

    def check(self) -> None:
        """Check that no points are missing that may come back.

        Raises:
            VectorsDamaged: some are.
        """
        if self._any:
            raise VectorsDamaged(
                f"points of collection {self._folder.name!r} were lost: "
                "it is searched again when the scrub has put those whose texts can be read"
            )


def is_broken(folder: Path) -> bool:
    """Whether files are missing or short that the engine misses only when it reads, or replaces."""
    return any(
        any(_short_chunks(one)) or _lost_count(one) or _has_lost_vectors(one) or _empty_pages(one)
        for one in _segments(folder)
    )


def mend(folder: Path, wanted: Settings, *, points: bool) -> None:
    """Make a folder that can be opened of what is there.

    Args:
        folder: the collection's; made if it is missing.
        wanted: the collection's settings.
        points: whether the collection has points. They count as lost then.

    Raises:
        VectorsDamaged: it could not be done.
        VectorsUnavailable: the folder is of a later release.
    """
    new = not folder.exists()
    folder.mkdir(exist_ok=True)
    if points:
        files.replace(folder / LOST_NAME, b"")
    if not any(_segments(folder)):
        write_description(folder, Description(wanted, planned=TIMES))
    else:
        _describe(folder, wanted)
        _make_readable(folder)
        if not any(_segments(folder)):
            write_description(folder, Description(wanted, planned=TIMES))
    if new:
        files.sync(folder.parent)


def _describe(folder: Path, wanted: Settings) -> None:
    """Write the description of a folder that has lost it."""
    try:
        read_description(folder)
    except VectorsDamaged:
        sparse = wanted.terms and not (folder / WORDS_NAME).exists()
        write_description(folder, Description(wanted, planned=None, sparse=sparse))


def _make_readable(folder: Path) -> None:
    config = folder / ENGINE_NAME / _CONFIG_NAME
    if not _json(config):
        config.unlink(missing_ok=True)
    for segment in _segments(folder):
        if (lost := _lost_count(segment)) is not None:
            lost.write_bytes(_points(segment).to_bytes(_NUMBER_BYTES, "little"))
        for path, size in _short_chunks(segment):
            with path.open("ab") as file:
                file.truncate(size)
        if (page := _new_page(segment)) is not None:
            page.unlink()
        if _empty_pages(segment):
            _set_aside(folder, segment.name, _PAYLOADS)
    if not _opens(folder):
        _open_one_by_one(folder)


def _open_one_by_one(folder: Path) -> None:
    """Leave those segments, or those parts of them, with which the engine opens the folder."""
    names = [segment.name for segment in _segments(folder)]
    for name in names:
        _set_aside(folder, name)
    try:
        _set_back_what_opens(folder, names)
    except VectorsUnavailable:  # it says nothing of the files
        for name in names:
            if (folder / ASIDE_NAME / name).exists():
                _set_back(folder, name)
        raise


def _set_back_what_opens(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        segment, aside = folder / ENGINE_NAME / SEGMENTS_NAME / name, folder / ASIDE_NAME / name
        for parts in _WITHOUT:
            aside.rename(segment)
            for part in parts:
                _set_aside(folder, name, part)
            if _opens(folder):
                break
            for part in parts:
                _set_back(folder, name, part)
            segment.rename(aside)


def _set_aside(folder: Path, segment: str, part: str = "") -> None:
    """Move a segment, or a part of it, to where the engine does not see it."""
    there = folder / ENGINE_NAME / SEGMENTS_NAME / segment / part
    name = f"{segment}.{part}" if part else segment
    if there.exists():
        aside = folder / ASIDE_NAME / name
        aside.parent.mkdir(exist_ok=True)
        if aside.exists():  # of an earlier time; it may hold what the scrub could not put again
            aside.rename(_free(aside))
        there.rename(aside)
        if part == _GRAPH:
            _describe_without_graph(there.parent / _SEGMENT_NAME, aside / _SEGMENT_NAME)


def _free(path: Path) -> Path:
    """Return a path beside another that nothing has: its name with the first free number."""
    named = (path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(one for one in named if not one.exists())


def _describe_without_graph(description: Path, before: Path) -> None:
    """Write into a segment's description that it has no graph; another is built then."""
    told = _json(description)
    vectors = told.get("config", {}).get("vector_data", {})
    if vectors:
        shutil.copyfile(description, before)
        for one in vectors.values():
            one["index"] = {"type": "plain", "options": {}}
        files.replace(description, json.dumps(told).encode())


def _set_back(folder: Path, segment: str, part: str = "") -> None:
    aside = folder / ASIDE_NAME / (f"{segment}.{part}" if part else segment)
    there = folder / ENGINE_NAME / SEGMENTS_NAME / segment / part
    if aside.exists():
        if there.exists():  # made by the engine meanwhile
            shutil.rmtree(there)
        aside.rename(there)
        if part == _GRAPH and (there / _SEGMENT_NAME).exists():
            (there / _SEGMENT_NAME).replace(there.parent / _SEGMENT_NAME)


def _opens(folder: Path) -> bool:
    try:
        loaded(folder / ENGINE_NAME, folder.name).close()
    except VectorsDamaged:
        return False
    return True


def _segments(folder: Path) -> Iterator[Path]:
    yield from sorted((folder / ENGINE_NAME / SEGMENTS_NAME).glob("*"))


def _points(segment: Path) -> int:
    """Return the number of points of an open segment; 0 for a closed one."""
    return _size(segment / "mutable_id_tracker.versions") // _NUMBER_BYTES


def _chunks(segment: Path) -> Path | None:
    """Return the folder of an open segment's vectors."""
    return next((path for name in _CHUNKS if (path := segment / name).exists()), None)


def _lost_count(segment: Path) -> Path | None:
    """Return the file that says how many vectors an open segment has, if it is lost."""
    chunks = _chunks(segment)
    if chunks is None or not _points(segment):
        return None
    path = chunks / "status.dat"
    return path if _size(path) < _NUMBER_BYTES else None


def _short_chunks(segment: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files of an open segment's vectors that are too short, with their right sizes."""
    chunks = _chunks(segment)
    told = {} if chunks is None else _json(chunks / "config.json")
    size, holds = told.get("chunk_size_bytes"), told.get("chunk_size_vectors")
    if chunks is not None and size and holds:
        for number in range(-(-_points(segment) // holds)):
            path = chunks / f"chunk_{number}.mmap"
            if _size(path) < size:
                yield path, size


def _empty_pages(segment: Path) -> list[int]:
    """Return the numbers of the empty pages of a segment's payloads."""
    pages = (segment / _PAYLOADS).glob("page_*.dat")
    return [int(page.stem.removeprefix("page_")) for page in pages if not _size(page)]


def _new_page(segment: Path) -> Path | None:
    """Return the last page of a segment's payloads if it is empty, as a crash may have left it.

    The engine does not count on it then, and does not open the segment with it.
    """
    pages, empty = list((segment / _PAYLOADS).glob("page_*.dat")), _empty_pages(segment)
    number = len(pages) - 1
    return segment / _PAYLOADS / f"page_{number}.dat" if number > 0 and empty == [number] else None


def _has_lost_vectors(segment: Path) -> bool:
    """Whether a closed segment has lost the file of its vectors; the engine makes one of zeros."""
    dense = _json(segment / _SEGMENT_NAME).get("config", {}).get("vector_data", {}).get("", {})
    if dense.get("storage_type") not in _IN_ONE_FILE or not _size(segment / "id_tracker.mappings"):
        return False
    name = "tq_vectors.dat" if dense.get("datatype") == "turbo4" else "matrix.dat"
    return _size(segment / _VECTORS / name) == 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
