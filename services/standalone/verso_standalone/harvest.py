"""The newest texts of a collection, read back in the order in which they were written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from verso_client import DocumentInfo, DocumentPage, StoredText
from verso_client.answers import CollectionInfo
from verso_codecs.mixture import HISTORY_BYTES
from verso_core.errors import CollectionUnknown, RequestInvalid

MOST_BYTES = 2 * HISTORY_BYTES
"""More texts than these are not read: the codec keeps half as much, the last and a sample."""

_BATCH = 64
_NUMBERS = re.compile(r"(\d+)")


class Platform(Protocol):
    """What this asks of a running platform."""

    def collections(self) -> list[CollectionInfo]:
        """List the collections."""

    def documents(self, collection: str, *, after: str | None = ...) -> DocumentPage:
        """List a collection's documents, a page at a time."""

    def reconstruct(self, ids: Sequence[str], *, collection: str = ...) -> list[StoredText]:
        """Read texts back."""


def texts_of(platform: Platform, name: str, *, space: str) -> list[bytes]:
    """Read the newest texts of a collection back, the oldest of them first.

    Their order is that of their times if each has one. Else it is that of the jobs that wrote
    them, and within a job that of their ids with numbers counted as numbers, so lines of a file
    stay in order. A text that is damaged, or deleted meanwhile, is left out.

    Args:
        platform: where the collection is.
        name: of the collection.
        space: id of the space that the collection must lie in.

    Raises:
        CollectionUnknown: there is no such collection.
        RequestInvalid: it lies in another space.
        VersoError: a text cannot be read now.
    """
    found = next((one for one in platform.collections() if one.name == name), None)
    if found is None:
        raise CollectionUnknown(f"no collection is named {name[:64]!r}")
    if found.space != space:
        raise RequestInvalid(
            f"expected an artifact of the collection's space {found.space}, got one of {space}; "
            "name another one with --artifact"
        )
    newest = _newest(sorted(_listed(platform, name), key=_order))
    texts: list[StoredText] = []
    for start in range(0, len(newest), _BATCH):
        ids = [row.id for row in newest[start : start + _BATCH]]
        for text in platform.reconstruct(ids, collection=name):
            if text.error is None:
                texts.append(text)
            elif text.error.retryable:
                raise text.error.exception()
    times = [text.time for text in texts if text.time is not None]
    if len(times) == len(texts):
        texts = [text for _, text in sorted(zip(times, texts, strict=True), key=lambda at: at[0])]
    return [text.data for text in texts]


def _listed(platform: Platform, name: str) -> Iterator[DocumentInfo]:
    cursor: str | None = None
    while True:
        page = platform.documents(name, after=cursor)
        yield from page.documents
        cursor = page.next_cursor
        if cursor is None:
            return


def _order(row: DocumentInfo) -> tuple[int, list[str | int]]:
    # Parts of an id are in turn words and numbers, so two ids never compare one with the other.
    parts = _NUMBERS.split(row.id)
    return row.written, [int(part) if at % 2 else part for at, part in enumerate(parts)]


def _newest(rows: Sequence[DocumentInfo]) -> Sequence[DocumentInfo]:
    size = 0
    for at in reversed(range(len(rows))):
        size += rows[at].bytes
        if size > MOST_BYTES:
            return rows[at + 1 :]
    return rows
