"""What the pipeline needs from outside: models, heads, the vector store, the ledger's documents.

The pipeline owns these protocols; the adapters implement them and never import one another. Each
adapter repeats the signatures, so that the type checker compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar
from uuid import UUID

from verso_core.errors import HeadUnknown
from verso_core.heads import Head, Judged, Task
from verso_core.jobs import AnyResult, AnySlice, Collection, Filter, IndexKind, Precision
from verso_core.jobs.fitting import Fitting, Generation, GenerationStage
from verso_core.record import Holdings, LedgerMemory
from verso_core.registry import Channel
from verso_core.segments import LinesDelete, LinesWrite, LogState, LogValue, Memory, Segment
from verso_worker.records.confidence import Statistics
from verso_worker.records.outputs import Classified, Document, Found, Predicted, Trial, Wanted
from verso_worker.records.points import Hit, Placed, Point, Sizes, Terms
from verso_worker.records.recorder import Recorder
from verso_worker.records.space import Stored, Vector

T = TypeVar("T")

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


class Cutter(Protocol):
    """Cuts a text into chunks."""

    def cut(self, text: bytes) -> list[bytes]:
        """Return the chunks, in order; joined they are the text."""

    def tokens(self, text: bytes) -> int:
        """Return how many tokens a text has for the encoder, without the special ones."""
        ...


class HeadEngine(Protocol):
    """Runs heads by name and version; HeadUnknown where one is not loaded."""

    def head_load(self, folder: Path) -> None:
        """Load and check a head; raises HeadInvalid."""

    def classify_vectors(self, name: str, version: str, *, vectors: Vector) -> Classified:
        """Classify vectors. Shape: (n, D)."""

    def classify_documents(
        self, name: str, version: str, *, documents: Sequence[Document]
    ) -> Classified:
        """Classify documents by the vectors of their chunks, and by their terms."""

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

    def predict(self, texts: Sequence[bytes], vectors: Vector) -> list[list[Predicted] | None]:
        """Return each text's tokens with the decoder's first guesses; None where unreadable."""


@dataclass(frozen=True, slots=True)
class Model:
    """One loaded artifact: how it cuts, codes and rounds.

    ``codec`` is the artifact's codec id, ``space`` its space id; ``heads`` runs heads of its space.
    ``max_tokens`` are the encoder's, special tokens included; ``pooling`` makes one vector of its.
    """

    codec: str
    space: str
    dim: int
    max_tokens: int
    pooling: str
    int8_scale: float
    cutter: Cutter
    recorder: Recorder
    heads: HeadEngine


@dataclass(frozen=True, slots=True)
class ServedHead:
    """The version of a head that a job uses.

    model: the artifact whose encoder it reads.
    statistics: of its signals; None for a head without them.
    """

    head: Head
    folder: Path
    channel: Channel
    model: Model
    statistics: Statistics | None

    def run(self, call: Callable[[HeadEngine, str, str], T]) -> T:
        """Call the engine with the head's name and version.

        A restarted engine has no heads, so a head that it does not know is loaded first.
        """
        engine = self.model.heads
        name, version = self.head.name, self.head.version
        try:
            return call(engine, name, version)
        except HeadUnknown:
            engine.head_load(self.folder)
            return call(engine, name, version)

    @property
    def about(self) -> dict[str, Any]:
        """Return the fields that name the head in a result."""
        return {"head": self.head.name, "version": self.head.version, "channel": self.channel.value}


@dataclass(frozen=True, slots=True)
class StableRun(Generic[T]):
    """How to run a slice with stable versions, to compare a canary with."""

    work: AnySlice
    run: Callable[[], T]


class Heads(Protocol):
    """The heads this platform serves."""

    def get(self, name: str, *, task: Task, job: str | None) -> ServedHead:
        """Return the version of a head that a job uses; for None the stable one.

        A job that is a :class:`Channel` chooses itself.

        Raises:
            HeadUnknown: there is no head of this name, or it does another task.
            HeadInvalid: its folder is invalid, and no earlier version was served.
        """

    def run_job(
        self,
        names: Sequence[str],
        call: Callable[[str | None], T],
        *,
        job: str,
        beside: StableRun[T] | None = None,
    ) -> T:
        """Run a job with the heads that its id chooses; if a canary fails it, without canaries.

        Args:
            names: the heads that the slice names.
            call: runs the job with the channels of the job id it is given; given None, with stable
                versions only.
            job: the job's id.
            beside: what a canary is compared with; None if the job is not to be run twice.
        """

    def canary(self, name: str, job: str) -> str | None:
        """Return the canary's version if the job is of its share, else None."""

    def judged(self, name: str, scores: Sequence[tuple[float, float]]) -> None:
        """Note the Brier scores of a head's canary and its stable version on labelled texts."""

    def states(self) -> list[dict[str, Any]]:
        """Describe all heads, by name."""

    def report(self, name: str, channel: Channel) -> tuple[Head, bytes]:
        """Return the version that a channel serves, and its card: Markdown, UTF-8.

        Raises:
            HeadUnknown: the channel serves no head of this name.
            HeadInvalid: its folder is invalid.
        """


class Models(Protocol):
    """The artifacts this worker can serve; older ones stay loadable while records need them."""

    def current(self) -> Model:
        """Return the artifact that new collections use."""

    def writing(self, collection: Collection) -> Model:
        """Return the artifact that writes into a collection: the newest one of its space."""

    def named(self, name: str | None) -> Model:
        """Return the artifact that serves under a name; None is the current one.

        Raises:
            ModelUnknown: none does.
        """

    def get(self, codec: str) -> Model:
        """Return the artifact with this codec id, or with the fitted tables of this generation.

        Raises:
            EngineUnavailable: there is none.
            ArtifactInvalid: the fitted tables are damaged, or decode to other texts here.
        """

    def codec_bytes(self, codec: str) -> int:
        """Return the size of the files that a codec decodes with; 0 where they are not kept."""
        ...

    def check_tables(self, codec: str, packed: bytes) -> None:
        """Read fitted tables as a load does, and decode their golden samples.

        Raises:
            ArtifactInvalid: one decodes to another text in this process.
        """


class Fitter(Protocol):
    """Fits tables, elsewhere."""

    def fit(self, codec: str, wanted: Wanted, on_progress: OnProgress) -> tuple[Trial, float]:
        """Fit tables on top of the artifact with a codec id.

        Returns:
            What came out, and the seconds of the processor that it took.

        Raises:
            EngineUnavailable: the fit ended early, or took too long.
        """
        ...


class Tables(Protocol):
    """The ledger's fitted tables of collections, which are named by their own names."""

    def tables(self, generation: str) -> bytes | None:
        """Return packed tables; None where the generation is deleted."""

    def add(
        self, name: str, generation: Generation, tables: bytes, *, number: int, chunks: int
    ) -> bool:
        """Store new tables as the collection's canary; False if fit ``number`` has ended."""
        ...

    def tried(self, name: str, *, number: int, chunks: int) -> None:
        """Record that fit ``number`` made no generation."""

    def verified(self, name: str, generation: str, records: int) -> int:
        """Count records of a generation that read back; return how many have so far."""
        ...

    def stage(self, name: str, generation: str, stage: GenerationStage) -> Fitting:
        """Put a generation in another stage."""
        ...


class Vectors(Protocol):
    """A vector store. A put is durable, and a get returns the same bytes that were put.

    Raises in every method that names a collection, but create and drop:
        CollectionUnknown: there is no such collection.
    """

    def create(
        self, name: str, *, dim: int, precision: Precision, int8_scale: float, terms: bool = False
    ) -> None:
        """Make a collection; one that exists with the same settings is left as it is.

        With ``terms`` it keeps the terms of its points as well.

        Raises:
            CollectionExists: one exists with other settings.
            IdInvalid: the name breaks the naming rules.
        """

    def drop(self, name: str) -> None:
        """Remove a collection and its points; one that does not exist is no error."""

    def put(self, name: str, points: Sequence[Point]) -> None:
        """Store points, all or none; they are safe from a power cut when this returns.

        Raises:
            VectorInvalid: a vector is not one of the collection's space.
            MetadataInvalid: a payload holds a value that the store would change.
            DiskFull: free space would fall below the floor.
        """

    def get(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Stored]:
        """Return the stored vectors of the points that exist. Shape of each: (dim,)."""

    def payloads(self, name: str, ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return the payloads of the points that exist."""

    def terms(self, name: str, ids: Sequence[UUID]) -> dict[UUID, Terms]:
        """Return the terms of the points that exist; empty for a collection without terms."""

    def page(
        self,
        name: str,
        start: UUID,
        *,
        limit: int,
        where: Filter | None = None,
        first: bool = False,
    ) -> list[Placed]:
        """Return points with their payloads, by ascending id from ``start`` on.

        Only those that pass the filter; with ``first`` only first chunks.
        """
        ...

    def by_time(
        self,
        name: str,
        start: float | None,
        *,
        descending: bool,
        limit: int,
        where: Filter | None = None,
    ) -> list[Placed]:
        """Return first chunks that have a time, ordered by it, from ``start`` on (inclusive).

        The order of points of one time is the store's own.
        """
        ...

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
        """Return the best points, best first: by vector, by terms, or by both where both are given.

        Shape of ``query``: (dim,). Terms are for collections that keep them.

        Raises:
            VectorInvalid: the query has another dimension, is not finite or has no direction.
        """

    def neighbours(self, name: str, rows: Stored, *, limit: int) -> list[list[UUID]]:
        """Return the points nearest to each stored vector, itself included, in the store's order.

        Shape of ``rows``: (n, dim).

        Raises:
            VectorInvalid: the rows are not of the collection's space.
        """

    def count(self, name: str, *, where: Filter | None = None, first: bool = False) -> int:
        """Count a collection's points that pass the filter; with ``first`` only first chunks."""
        ...

    def index(self, name: str, fields: Mapping[str, IndexKind]) -> None:
        """Index metadata fields, so that filters by them need not read every point.

        A store may do it later, in a quiet moment. An index that is there stays as it is.
        """
        ...

    def sizes(self, name: str) -> Sizes:
        """Return how many points a collection has, and the size of their vectors and terms."""


class FeedbackRows(Protocol):
    """Labels that people have checked, by version of a head."""

    def add(self, head: str, version: str, rows: Mapping[bytes, Judged]) -> None:
        """Store rows by the hash of what was labelled; of too many the oldest are removed."""

    def rows(self, head: str, version: str) -> list[Judged]:
        """Return the rows of a version, oldest first."""
        ...


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
        """Return a collection by its own name; raises CollectionUnknown if there is none."""

    def collection_put(
        self, collection: Collection, *, prepare: Callable[[Collection], None] | None = None
    ) -> Collection:
        """Make a collection; return the one that has its name now, which may be an earlier one.

        ``prepare`` is called with a new collection, by its own name, to create its vectors.
        """

    def collection_room(self, own: str) -> str:
        """Announce a collection of vectors; it is removed unless the returned token is used."""

    def collection_artifact(self, name: str, codec: str) -> int:
        """Return the artifact slot of a codec in a collection; a new codec is appended."""

    def collection_change(
        self, name: str, change: Callable[[Collection], Collection]
    ) -> Collection:
        """Change a collection's settings, by its own name, and return it as it is then."""
        ...

    def collection_delete(self, name: str, *, by: int = 0) -> list[str]:
        """Remove a collection and its documents; return the own names whose vectors can go."""

    def collection_deleted(self, name: str, *, by: int) -> bool:
        """Whether slice number ``by`` deleted the last collection that users knew by a name."""

    def entry(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Return the entries of the documents that exist, long ones resolved."""

    def entries(
        self, collection: str, *, first: int = 0, count: int | None = None
    ) -> Iterable[tuple[str, bytes]]:
        """Yield the entries in ``count`` buckets from ``first`` on; None: in all that follow."""

    def names(self, collection: str, hashes: Iterable[int]) -> dict[int, str]:
        """Return the documents whose ids have these hashes, by hash."""
        ...

    def holdings(self, collection: str) -> Holdings:
        """Return the totals of a collection's entries."""

    def memory(self, collection: str) -> LedgerMemory:
        """Return what the ledger's server holds in memory for a collection, measured on a part."""

    def texts(self, collection: str, documents: Sequence[str]) -> dict[str, bytes]:
        """Return the texts that a collection with text policy ``both`` keeps."""

    def orphans(self, collection: str, points: Sequence[UUID], *, age_s: float) -> list[UUID]:
        """Record points that no entry names; return those among them that may be removed."""

    def orphans_forget(self, collection: str, points: Sequence[UUID]) -> None:
        """Delete points from the records of points that no entry names."""

    def repair(
        self, collection: str, document: str, *, old: bytes, entry: bytes, text: bytes | None
    ) -> bool:
        """Replace the entry ``old``; return False if another one is stored by now."""


class Logs(Protocol):
    """The ledger's lines of log collections, by own name or uid."""

    def state(self, collection: str) -> LogState:
        """Return what a collection holds now; raises CollectionUnknown if there is none."""
        ...

    def streams(self, uid: str) -> dict[int, dict[str, str]]:
        """Return the labels of each stream, but for damaged ones."""
        ...

    def rows(
        self, uid: str, kind: Literal["shapes", "statements"], *, first: int = 0
    ) -> list[bytes]:
        """Return the elements of a list from one on."""
        ...

    def append(
        self,
        collection: str,
        uid: str,
        kind: Literal["shapes", "statements"],
        *,
        known: int,
        rows: Sequence[bytes],
    ) -> bool:
        """Append to a list if it still has ``known`` elements; return whether it had."""
        ...

    def tables(self, uid: str) -> dict[int, bytes]:
        """Return the fitted tables by generation."""
        ...

    def put_tables(self, collection: str, uid: str, generation: int, packed: bytes) -> bytes:
        """Store the tables of a generation unless there are some; return those stored."""
        ...

    def segments(self, uid: str, *, after: int = 0) -> list[bytes]:
        """Return the members of the segments written after segment number ``after``."""
        ...

    def read(self, uid: str, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Return segments by stream and first number; None for one that is gone."""
        ...

    def gone(self, uid: str, places: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """Return the bitmaps of segments' deleted lines; None for one without any."""
        ...

    def heads(self, uid: str, places: Sequence[tuple[int, int]], *, size: int) -> list[bytes]:
        """Return the first bytes of segments; empty for one that is gone."""
        ...

    def swap(
        self,
        collection: str,
        uid: str,
        old: Sequence[tuple[Segment, bytes]],
        new: Sequence[tuple[Segment, bytes, bytes]],
    ) -> bool:
        """Replace segments by others of the same lines; return whether they were unchanged."""
        ...

    def delete(self, collection: str, uid: str, lines: Sequence[LinesDelete]) -> int | None:
        """Delete lines; return how many, None if a segment or a bitmap was replaced meanwhile."""
        ...

    def correct_stream(self, labels: bytes, value: bytes) -> tuple[bytes, bytes] | None:
        """Return a stream's labels and value as they were stored, a flipped bit corrected."""
        ...

    def stored_streams(self, uid: str) -> dict[bytes, bytes]:
        """Return labels and value of each stream as they are stored."""
        ...

    def correct(
        self,
        collection: str,
        uid: str,
        kind: LogValue,
        *,
        where: str | int | bytes = "",
        old: bytes,
        new: bytes,
        labels: bytes = b"",
    ) -> bool:
        """Replace a damaged value; return whether it was still the one that is damaged."""
        ...

    def put_counts(self, collection: str, state: LogState, counts: Mapping[str, int]) -> bool:
        """Set counters to what was counted; return whether the state is still the one given."""
        ...

    def sizes(self, uid: str, places: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Yield the bytes of segments; 0 for one that is gone."""
        ...

    def memory(self, uid: str, *, vectors: str) -> Memory:
        """Return what a collection's keys take in memory."""
        ...


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
