"""What the pipeline needs of the vector store and of the ledger's documents and lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol
from uuid import UUID

from verso_core.jobs import Collection, Filter, IndexKind, Precision
from verso_core.jobs.statistics import Holdings, LedgerMemory
from verso_core.segments import Basis, LinesDelete, LogState, LogValue, Memory, Segment
from verso_worker.records.points import Hit, Placed, Point, Sizes, Terms
from verso_worker.records.space import Stored, Vector

Ask = Callable[[Stored, int], Sequence[Sequence[int]]]
"""Returns for each row of stored vectors the numbers of the nearest records, so many.

A point of no record is -1, so that a list that was cut differs in length from a complete one.
"""


class Vectors(Protocol):
    """A vector store. A put is durable, and a get returns the same bytes that were put.

    Raises in every method that names a collection, but create and drop:
        CollectionUnknown: there is no such collection.
        VectorsDamaged: its vectors are damaged, or those asked for are being put again.
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

    def mend(
        self,
        name: str,
        *,
        dim: int,
        precision: Precision,
        int8_scale: float,
        terms: bool = False,
        points: bool,
    ) -> bool:
        """Make what can be made of a collection that is lost or damaged; a sound one stays.

        With ``points`` it has some, and is not searched until :meth:`note_scrubbed`.

        Returns:
            Whether points are missing that no scrub has looked for yet.
        """
        ...

    def note_scrubbed(self, name: str, *, chunks: int, whole: bool = True) -> None:
        """Record that a scrub has looked for the points of so many chunks.

        Not ``whole``: for the first of them perhaps before points were lost; they stay lost then.
        """

    def missing(self, name: str) -> int:
        """Return how many points there were too few when :meth:`note_scrubbed` was last called."""
        ...

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
        """Return the terms of the points whose terms the store can give back.

        An index of words cannot: they follow from the text.
        """
        ...

    def differing(self, name: str, expected: Mapping[UUID, Terms]) -> set[UUID]:
        """Return the points that do not have these terms; none of a collection without terms."""
        ...

    def having(self, name: str, words: Sequence[int]) -> dict[int, int] | None:
        """Return how many points have each word, by its id; None where the store does not tell."""
        ...

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
        besides: Sequence[UUID] | None = None,
    ) -> list[Hit]:
        """Return the best points, best first: by vector, by terms, or by both where both are given.

        Shape of ``query``: (dim,). Terms are for collections that keep them. With ``besides`` the
        filter is asked of points with payload alone, and these points pass too: a filter by the id
        cannot tell which points without payload do.

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

    def named(self, name: str) -> Collection | None:
        """Return the collection that users know by a name; None if there is none."""

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

    def uid(self, collection: str) -> str:
        """Return what the keys of a collection are named by."""
        ...

    def written_before(self, age_s: float) -> int:
        """Return a sequence number: the documents up to it were written so long ago, or longer."""
        ...

    def to_cold(
        self, collection: str, uid: str, rows: Sequence[tuple[str, bytes, bytes]], *, until: float
    ) -> bool:
        """Replace entries that are still what was read: document, entry, what is left of it.

        Return False if the collection is gone, nothing is written now, or the ledger's time is
        later than ``until``.
        """
        ...

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
        last: bytes = ...,
        rows: Sequence[bytes],
    ) -> bool:
        """Append to a list of ``known`` elements that ends with ``last``; whether it is that."""
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

    def listed(self, uid: str) -> tuple[int, int, list[bytes]]:
        """Return of one moment: lines and removals as they are counted, and all members."""
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

    def uids(self) -> set[str]:
        """Return the uids of all collections, and of those that are copied here."""
        ...

    def removal_paused(self) -> bool:
        """Whether nothing is to be removed from the stores: for a backup, or by an old ledger."""
        ...

    def swap(
        self,
        collection: str,
        uid: str,
        old: Sequence[tuple[Segment, bytes]],
        new: Sequence[tuple[Segment, bytes, bytes]],
        *,
        basis: Basis,
    ) -> bool | None:
        """Replace segments by others of the same lines; return whether they were unchanged.

        None if the ledger lacks what the others were coded by.
        """
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

    def now(self) -> float:
        """Return the server's time, Unix seconds."""
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
        until: float | None = None,
    ) -> bool:
        """Replace a value by another that says the same; return whether it had not changed.

        After the server's time ``until`` nothing is replaced.
        """
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


class Objects(Protocol):
    """An object store. A put is durable, and a get returns the same bytes that were put.

    Raises in every method:
        ObjectsUnavailable: it did not answer, or refused.
    """

    def of(self, ledger: str) -> Objects:
        """Return the objects of another ledger."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Store an object.

        Raises:
            DiskFull: free space would fall below the floor.
        """
        ...

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Return objects; None for one that is not there."""
        ...

    def parts(self, asked: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
        """Return parts of objects by name, offset and size; None if the object is not there.

        What an object is too short for is missing from its parts.
        """
        ...

    def list(self, prefix: str) -> Iterable[tuple[str, int]]:
        """Yield the names and sizes of the objects below a prefix."""
        ...

    def prefixes(self) -> Iterable[str]:
        """Yield the first parts of all names."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; one that is not there is no error."""
        ...
