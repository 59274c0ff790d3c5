"""The report of `verso demo`, as JSON for machines and as tables for people.

Storage is counted in real bytes and in three views; a view in which Verso takes *more* than its
rival says so:

    i    vector and text codec      the stored vectors; each text in the best codec that needs no
                                    decoder (zstd with the artifact's trained dictionary, or raw)
    ii   vector and text as usual   vectors in float32, uncompressed texts
    iii  text alone                 uncompressed texts, and no search

Verso's side is everything it stores for the collection's documents: vectors and whole entries, that
is, patches with their hashes, checksums and sizes. The rivals' side is payload only, and zstd gets
each text whole where Verso codes it in chunks. Both favour the rival.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Share:
    """The chunks whose patch one codec won, and the bytes of those patches."""

    records: int
    bytes: int


@dataclass(frozen=True)
class SearchRun:
    """One search of the demo.

    Attributes:
        rank: rank of the first right document among the distinct documents found, from 1; None if
            it is not among them.
        ms: from request to answer, over HTTP, including reading the hits' texts.
    """

    query: str
    rank: int | None
    ms: float
    top: str
    top_score: float


@dataclass(frozen=True)
class View:
    """One comparison of Verso's bytes with the rival's."""

    name: str
    rival: str
    verso_bytes: int
    rival_bytes: int

    @property
    def saved(self) -> float:
        """Share of the rival's bytes that Verso saves; negative if Verso takes more."""
        return 1.0 - self.verso_bytes / self.rival_bytes if self.rival_bytes else 0.0


@dataclass(frozen=True)
class Report:
    """The measurements of `verso demo`. Sizes are bytes, times seconds unless named ``_ms``."""

    expected: int
    texts: int
    exact: int
    verified: int
    chunks: int
    dim: int
    precision: str
    bytes_text: int
    bytes_vectors: int
    bytes_patches: int
    bytes_entries: int
    bytes_zstd: int
    codecs: dict[str, Share]
    searches: list[SearchRun]
    ingest_s: float
    verify_s: float
    restore_s: float
    restored_tokens: int
    seconds: float
    machine: dict[str, Any]
    failed: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether every text of the corpus was ingested, verified and read back exactly."""
        return (
            not self.failed
            and self.texts >= self.expected
            and self.exact == self.texts == self.verified
        )

    @property
    def restore_tokens_per_s(self) -> float:
        """Decoder tokens of all texts, per second of reading them back."""
        return self.restored_tokens / self.restore_s if self.restore_s else 0.0

    @property
    def restore_bytes_per_s(self) -> float:
        """Bytes of all texts, per second of reading them back."""
        return self.bytes_text / self.restore_s if self.restore_s else 0.0

    @property
    def hits_at_1(self) -> int:
        """Searches whose first document is right."""
        return sum(run.rank == 1 for run in self.searches)

    @property
    def hits_at_10(self) -> int:
        """Searches with a right document among the first ten."""
        return sum(run.rank is not None and run.rank <= 10 for run in self.searches)

    def views(self) -> list[View]:
        """Return the three comparisons of the module's docstring."""
        verso = self.bytes_vectors + self.bytes_entries
        float32 = self.chunks * self.dim * _FLOAT32_BYTES
        return [
            View(
                "i", "vectors + zstd with dictionary", verso, self.bytes_vectors + self.bytes_zstd
            ),
            View("ii", "float32 vectors + text", verso, float32 + self.bytes_text),
            View("iii", "text alone", verso, self.bytes_text),
        ]

    def json(self) -> str:
        """Return the report as one JSON object."""
        row = asdict(self)
        row["views"] = [{**asdict(view), "saved": round(view.saved, 4)} for view in self.views()]
        row["restore_tokens_per_s"] = round(self.restore_tokens_per_s, 1)
        row["restore_bytes_per_s"] = round(self.restore_bytes_per_s, 1)
        row["hits_at_1"], row["hits_at_10"] = self.hits_at_1, self.hits_at_10
        row["passed"] = self.passed
        return json.dumps(row, indent=2, ensure_ascii=False)

    def show(self, console: Console) -> None:
        """Print the report as tables."""
        for table in (self._storage(), self._codecs(), self._views(), self._searches()):
            console.print(table)
        for line in self._lines():
            console.print(line, highlight=False)

    def _storage(self) -> Table:
        table = Table("stored", "count", "bytes", "bytes a text", title="What is kept")
        for name, count, size in (
            ("text (dropped)", self.texts, self.bytes_text),
            ("vectors", self.chunks, self.bytes_vectors),
            ("patches", self.chunks, self.bytes_patches),
            ("entries (patches with heads)", self.texts, self.bytes_entries),
        ):
            table.add_row(name, f"{count:,}", f"{size:,}", f"{size / max(self.texts, 1):,.1f}")
        return _numbers_right(table)

    def _codecs(self) -> Table:
        table = Table("codec", "chunks", "share", "bytes", title="Which codec won")
        for name, share in sorted(self.codecs.items()):
            part = share.records / max(self.chunks, 1)
            table.add_row(name, f"{share.records:,}", f"{part:.1%}", f"{share.bytes:,}")
        return _numbers_right(table)

    def _views(self) -> Table:
        title = f"Storage, vectors in {self.precision}"
        table = Table("view", "against", "Verso", "the other", "Verso saves", title=title)
        patches = View("-", "patches alone: zstd alone", self.bytes_patches, self.bytes_zstd)
        for view in (*self.views(), patches):
            saved = f"{view.saved:.1%}"
            table.add_row(
                view.name,
                view.rival,
                f"{view.verso_bytes:,}",
                f"{view.rival_bytes:,}",
                saved if view.saved >= 0 else f"[red]{saved}: takes more[/red]",
            )
        return _numbers_right(table, first=2)

    def _searches(self) -> Table:
        table = Table("search", "right at", "ms", "best hit", title="Ten searches")
        for run in self.searches:
            rank = str(run.rank) if run.rank is not None else "[red]not found[/red]"
            table.add_row(
                run.query, rank, f"{run.ms:.0f}", f"{escape(run.top)} ({run.top_score:.2f})"
            )
        return table

    def _lines(self) -> Iterator[str]:
        yield (
            f"read back exactly: {self.exact:,}/{self.texts:,}   "
            f"verified and dropped: {self.verified:,}/{self.texts:,}"
        )
        yield (
            f"searches: right document first {self.hits_at_1}/{len(self.searches)}, "
            f"among ten {self.hits_at_10}/{len(self.searches)}"
        )
        yield (
            f"restore: {self.restore_tokens_per_s:,.0f} tokens/s, "
            f"{self.restore_bytes_per_s / 1000:,.1f} kB/s"
        )
        yield (
            f"seconds: ingest {self.ingest_s:.0f}, until verified {self.verify_s:.0f}, "
            f"read back {self.restore_s:.0f}, in all {self.seconds:.0f}"
        )
        for failure in self.failed[:20]:
            yield f"FAILED {failure}"


def _numbers_right(table: Table, first: int = 1) -> Table:
    for column in table.columns[first:]:
        column.justify = "right"
    return table
