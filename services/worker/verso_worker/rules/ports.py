"""What the pipeline needs of the world: the model, the vector store, the ledger's documents.

The pipeline owns these protocols; the adapters implement them and never import one another. Each
adapter repeats the signatures, so that the type checker compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from verso_core.jobs import AnyResult, Collection, Filter, Precision
from verso_core.record import Holdings
from verso_worker.records.neural import Vector
from verso_worker.records.outputs import Classified, Found
from verso_worker.records.points import Hit, Point, Sizes, Terms
from verso_worker.records.recorder import Recorder, Stored

OnProgress = Callable[[str, int, int], None]
"""Receives of a stage how much is done, and of how much; raises Cancelled to end the work."""


def no_progress(stage: str, done: int, of: int) -> None:
    """Ignore the progress of a stage."""


class Cutter(Protocol):
    """Cuts a text into chunks."""

    def cut(self, text: bytes) -> list[bytes]:
        """Return the chunks, in order; joined they are the text."""


class HeadEngine(Protocol):
    """Runs heads by name and version; HeadUnknown where one is not loaded."""

    def head_load(self, folder: Path) -> None:
        """Load and check a head; raises HeadInvalid."""

    def classify_vectors(self, name: str, version: str, *, vectors: Vector) -> Classified:
        """Classify vectors. Shape: (n, D)."""

    def classify_texts(self, name: str, version: str, *, texts: Sequence[bytes]) -> Classified:
        """Classify texts by their tokens."""

    def score_vectors(self, name: str, version: str, *, pairs: Vector) -> Vector:
        """Score pairs of vectors. Shape: (n, 2, D) to (n,)."""

    def score_texts(
        self, name: str, version: str, *, first: Sequence[bytes], second: Sequence[bytes]
    ) -> Vector:
        """Score pairs of texts. Shape: (n,)."""

    def answer(
        self, name: str, version: str, *, question: bytes, contexts: Sequence[str], count: int
    ) -> list[Found]:
        """Read the best spans of each context."""

    def probe(self, texts: Sequence[bytes], vectors: Vector) -> list[tuple[int, int]]:
        """Count right first guesses of the decoder, and tokens, of each text."""


@dataclass(frozen=True, slots=True)
class Model:
    """One loaded artifact: how it cuts, codes and rounds.

    ``codec`` is the artifact's codec id, ``space`` its space id; ``heads`` runs heads of its space.
    """

    codec: str
    space: str
    dim: int
    int8_scale: float
    cutter: Cutter
    recorder: Recorder
    heads: HeadEngine


class Models(Protocol):
    """The artifacts this worker can serve; older ones stay loadable while records need them."""

    def current(self) -> Model:
        """Return the artifact that new collections use."""

    def writing(self, collection: Collection) -> Model:
        """Return the artifact that writes into a collection: the newest one of its space."""

    def get(self, codec: str) -> Model:
        """Return the artifact with this codec id; raises EngineUnavailable where there is none."""


class Vectors(Protocol):
    """A vector store. A put is durable, and a get gives the very bytes that were put."""

    def create(
        self, name: str, *, dim: int, precision: Precision, int8_scale: float, terms: bool = False
    ) -> None:
        """Make a collection; one that exists with the same settings is left as it is."""

    def drop(self, name: str) -> None:
        """Remove a collection and its points."""

    def put(self, name: str, points: Sequence[Point]) -> None:
        """Store points; when this returns a power cut does not lose them."""

    def get(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Stored]:
        """Return the stored vectors of the points that exist. Shape of each: (dim,)."""

    def payloads(self, name: str, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return the payloads of the points that exist."""

    def terms(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Terms]:
        """Return the terms of the points that exist; nothing where the collection keeps none."""

    def page(self, name: str, start: UUID, *, limit: int) -> list[tuple[UUID, dict[str, Any]]]:
        """Return points with their payloads, by ascending id from ``start`` on."""

    def remove(self, name: str, ids: Sequence[UUID]) -> None:
        """Remove points; ids that do not exist are ignored."""

    def search(
        self,
        name: str,
        query: Vector | None,
        *,
        limit: int,
        where: Filter | None,
        terms: Terms | None = None,
    ) -> list[Hit]:
        """Return the best points by vector, terms or both. Shape of ``query``: (dim,)."""

    def neighbours(self, name: str, rows: Stored, *, limit: int) -> list[list[UUID]]:
        """Return the points nearest to each stored vector, itself included. Shape: (n, dim)."""

    def count(self, name: str) -> int:
        """Count a collection's points."""

    def sizes(self, name: str) -> Sizes:
        """Return what a collection has in this store."""


class Lexicon(Protocol):
    """Finds the words of texts, for collections that are searched by them as well."""

    def documents(self, texts: Sequence[bytes]) -> list[Terms]:
        """Return the terms of chunks."""

    def query(self, text: bytes) -> Terms:
        """Return the terms of a query."""


class Documents(Protocol):
    """The ledger's documents and collections."""

    def collections(self) -> dict[str, Collection]:
        """Return all collections by name."""

    def collection(self, name: str) -> Collection:
        """Return one collection by its own name; raises CollectionUnknown where there is none."""

    def collection_put(
        self, collection: Collection, *, prepare: Callable[[Collection], None] | None = None
    ) -> Collection:
        """Make a collection and give what is now stored under its name: maybe an earlier one.

        ``prepare`` makes room for the vectors of one that is new, which it gets by its own name.
        """

    def collection_room(self, own: str) -> str:
        """Announce room that will be made for vectors: garbage, if its token is not used."""

    def collection_artifact(self, name: str, codec: str) -> int:
        """Return the artifact slot of a codec in a collection, appending it where it is new."""

    def collection_delete(self, name: str, *, by: int = 0) -> list[str]:
        """Remove a collection and its documents; give the own names whose vectors may go."""

    def collection_deleted(self, name: str, *, by: int) -> bool:
        """Whether the last collection that users knew by a name was deleted by this slice."""

    def entry(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Return the entries of the documents that exist, long ones resolved."""

    def entries(
        self, collection: str, *, first: int = 0, count: int | None = None
    ) -> Iterable[tuple[str, bytes]]:
        """Go through the entries in ``count`` buckets (all) of a collection from ``first`` on."""

    def holdings(self, collection: str) -> Holdings:
        """Return what a collection's entries say in sum."""

    def texts(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Return the texts that a collection with text policy ``both`` keeps."""

    def orphans(self, collection: str, points: Sequence[UUID], *, age_s: float) -> list[UUID]:
        """Note points that no entry names, and give those among them that may be removed."""

    def orphans_forget(self, collection: str, points: Sequence[UUID]) -> None:
        """Forget that points were noted as no_progress's."""

    def repair(
        self, collection: str, document: str, *, old: bytes, entry: bytes, text: bytes | None
    ) -> bool:
        """Put an entry in the place of ``old``; False where ``old`` is not stored any more."""


@dataclass(frozen=True, slots=True)
class Write:
    """A document to be committed; ``text`` only where the collection keeps texts as well.

    ``over`` is a damaged entry that a verify has proved to be an earlier attempt's of the same
    slice, though its number says otherwise.
    """

    document: str
    entry: bytes
    text: bytes | None = None
    over: bytes = b""


@dataclass(frozen=True, slots=True)
class SliceOutcome:
    """What a slice came to: its result, and what the ledger commits with it."""

    result: AnyResult
    writes: list[Write] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    collection: str = ""
    """Own name of the collection that writes and deletes are for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an independent verify found: documents that read back, and new entries for the rest."""

    sound: list[str]
    rewritten: list[Write]
    collection: str = ""
    """Own name of the collection they lie in."""
