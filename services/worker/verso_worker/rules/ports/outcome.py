"""What a slice reports while it runs, and what is committed at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verso_core.jobs import AnyResult
from verso_core.segments import LinesWrite

OnProgress = Callable[[str, int, int], None]
"""Receives the name of a stage, how much of it is done, and how much there is to do.

It raises Cancelled to end the work.
"""

OnPart = Callable[[str, Mapping[str, Any]], None]
"""Receives a part of a result before its end: a name, and a JSON object. It raises Cancelled to
end the work."""


def no_part(name: str, part: Mapping[str, Any]) -> None:
    """Ignore a part of a result."""


def no_progress(stage: str, done: int, of: int) -> None:
    """Ignore the progress of a stage."""


@dataclass(frozen=True, slots=True)
class Write:
    """A document to be committed; ``text`` only for a collection that keeps texts as well.

    ``over`` is a damaged entry that this write may replace: a verify has proved that an earlier
    attempt of the same slice wrote it, though its sequence number is another. ``replaces`` is the
    number of the entry whose text the new one has: only metadata and time change, and only if that
    entry is still stored.
    """

    document: str
    entry: bytes
    text: bytes | None = None
    over: bytes = b""
    replaces: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A document to be deleted; with ``replaces`` only if its entry still has this number."""

    document: str
    replaces: int | None = None


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """The result of a slice, and the writes and deletes that the ledger commits with it."""

    result: AnyResult
    writes: list[Write] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    collection: str = ""
    """Own name of the collection of the writes and deletes."""
    lines: LinesWrite | None = None
    """Segments of lines that are committed with it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an independent verify found: documents that read back, and new entries for the rest."""

    sound: list[str]
    rewritten: list[Write]
    collection: str = ""
    """Own name of the documents' collection."""
    lines: tuple[str, str, int] | None = None
    """Own name and uid of a log collection, and how many of its lines read back."""
    written_by: dict[str, str] = field(default_factory=dict)
    """Codec of the artifact that wrote a document's records, where its entry is whole."""
