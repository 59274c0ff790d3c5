"""Make, delete and describe collections."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from verso_core.errors import (
    CollectionExists,
    CollectionUnknown,
    DiskFull,
    KindUnsupported,
    ModelUnknown,
    RequestInvalid,
    VectorsDamaged,
    VectorsUnavailable,
)
from verso_core.jobs import Collection, CollectionKind, Precision, SearchMode, TextPolicy
from verso_core.jobs.collections import (
    MAX_INDEXES,
    CollectionChangeParams,
    CollectionDeleted,
    CollectionInfo,
    CollectionParams,
    CollectionSettings,
)
from verso_core.jobs.fitting import GenerationState, artifact_of
from verso_core.jobs.statistics import CodecShare, Kept, Statistics
from verso_worker.records.points import Sizes
from verso_worker.rules.ports.models import Model, Models
from verso_worker.rules.ports.stores import Documents, Vectors

_log = logging.getLogger(__name__)


def collection_named(documents: Documents, name: str) -> Collection:
    """Return the collection that users know by a name.

    Raises:
        CollectionUnknown: there is none.
    """
    found = documents.named(name)
    if found is None:
        raise CollectionUnknown(f"no collection {name!r}")
    return found


def collection_asked(documents: Documents, name: str, *, seq: int) -> Collection:
    """Return the collection that a slice was accepted for, by the slice's sequence number.

    Raises:
        CollectionUnknown: there is none, or another was made under its name since, perhaps another
            tenant's.
    """
    found = collection_named(documents, name)
    if seq < int(documents.uid(found.name).partition(".")[0]):
        raise CollectionUnknown(f"no collection {name!r} that was there when this was asked")
    return found


@dataclass(frozen=True, slots=True)
class Collections:
    """The collections of this platform.

    Args:
        models: the loaded artifacts.
        vectors: the vector store.
        documents: entries and collections.
        buckets: number of buckets of a new collection.
    """

    models: Models
    vectors: Vectors
    documents: Documents
    buckets: int

    def create(self, request: CollectionParams) -> CollectionInfo:
        """Create a collection in an artifact's space, or return an equal one that exists.

        Raises:
            ModelUnknown: no artifact serves under the name that is given.
            CollectionExists: there is one of this name with other settings.
            KindUnsupported: a log collection was to keep texts.
            RequestInvalid: int4 was asked for an artifact of an odd dimension.
        """
        if request.kind is CollectionKind.LOGS and request.text_policy is TextPolicy.BOTH:
            raise KindUnsupported(
                "expected text_policy patch for a collection of kind logs: lines are kept in blocks"
            )
        model = self._model(request)
        known = self.documents.named(request.name)
        if known is not None:
            if request.artifact is not None and known.space != model.space:
                raise CollectionExists(
                    f"{request.name!r} exists with space {known.space}, not {model.space}"
                )
            return _same(known, request)
        wanted = Collection(
            name=request.name,
            precision=_precision(request, dim=model.dim),
            text_policy=request.text_policy,
            space=model.space,
            dim=model.dim,
            int8_scale=model.int8_scale,
            artifacts=(model.codec,),
            buckets=self.buckets,
            checksum_key=secrets.token_hex(16),
            created=datetime.now(UTC),
            search=request.search,
            owner=request.owner,
            codec_policy=request.codec_policy,
            indexes=request.indexes,
            retention_days=request.retention_days,
            kind=request.kind,
            auto_fit=request.auto_fit,
        )
        return _same(self.documents.collection_put(wanted, prepare=self._make_room), request)

    def delete(self, name: str, *, by: int) -> CollectionDeleted:
        """Delete a collection with its documents and vectors, and with the rest of a migration.

        Args:
            name: the collection, as users know it.
            by: sequence number of the slice. If an earlier attempt of the slice has deleted the
                collection, a later collection of this name is not deleted.

        Raises:
            CollectionUnknown: there is none of this name, or it is younger than the slice.
            CollectionBusy: a backup is being taken.
        """
        if self.documents.collection_deleted(name, by=by):
            return CollectionDeleted(name=name)
        collection = collection_named(self.documents, name)
        # Entries first: a crash in between leaves vectors, which the ledger has listed for removal,
        # and never entries without vectors.
        for own in self.documents.collection_delete(collection.name, by=by):
            self.vectors.drop(own)
        return CollectionDeleted(name=name)

    def clear(self, name: str) -> None:
        """Drop the vectors under an own name that no collection has any more."""
        try:
            self.documents.collection(name)
        except CollectionUnknown:
            self.vectors.drop(name)

    def _model(self, request: CollectionParams) -> Model:
        """Return the artifact that makes a collection's vectors.

        A new partition is of its collection's space, whose first artifact may serve no more.

        Raises:
            ModelUnknown: no artifact serves under the name that is given.
        """
        if request.space is not None and self.models.current().space == request.space:
            return self.models.current()
        try:
            return self.models.named(request.artifact)
        except ModelUnknown:
            if request.space is None or request.artifact is None:
                raise
            return self.models.get(request.artifact)

    def _make_room(self, collection: Collection) -> None:
        self.vectors.create(collection.name, **_space(collection))
        self.vectors.index(collection.name, collection.indexes)

    def change(
        self, wanted: CollectionChangeParams, *, sides: Callable[[], Sequence[str]]
    ) -> CollectionInfo:
        """Add indexes to a collection, or change other settings of it.

        Args:
            wanted: what changes.
            sides: returns the own names that the settings are kept under now: that of the
                collection, and of the one that a migration fills. They are looked up again after
                each change, so that a migration that begins or ends meanwhile swallows none.

        Raises:
            CollectionUnknown: there is no such collection.
            RequestInvalid: it would have too many indexes.
        """

        def changed(now: Collection) -> Collection:
            update: dict[str, Any] = {"indexes": now.indexes | wanted.indexes}
            if len(update["indexes"]) > MAX_INDEXES:
                raise RequestInvalid(f"expected <= {MAX_INDEXES} indexes in all")
            if "retention_days" in wanted.model_fields_set:
                update["retention_days"] = wanted.retention_days
            if wanted.codec_policy is not None:
                update["codec_policy"] = wanted.codec_policy
            if wanted.auto_fit is not None:
                update["auto_fit"] = wanted.auto_fit
            return now.model_copy(update=update)

        done: dict[str, Collection] = {}
        while not done.keys() >= set(names := sides()):
            own = next(name for name in names if name not in done)
            try:
                done[own] = self.documents.collection_change(own, changed)
                self.vectors.index(own, wanted.indexes)
            except CollectionUnknown:
                if own in sides():  # else its migration has been cancelled meanwhile
                    raise
        stored = done[names[0]]
        return CollectionInfo(**CollectionInfo.settings(stored) | {"name": wanted.name})

    def ensure_indexes(self) -> None:
        """Ask again for the indexes of all collections: a store may have deferred some."""
        for collection in self.documents.collections().values():
            if collection.indexes:
                with suppress(CollectionUnknown, VectorsDamaged):  # its documents say so
                    self.vectors.index(collection.name, collection.indexes)

    def lacking(self) -> list[str]:
        """Return the collections of which the vector store has lost points lately.

        Those that a scrub could not put again are left out: to look for them again is no use.
        """
        found = self.documents.collections().items()
        return [name for name, one in found if self._mended(one) or self._lacks(one)]

    def _mended(self, collection: Collection) -> bool:
        """Mend a collection's vectors if they need it; whether points are to be put again."""
        own = collection.name
        try:
            points = self.documents.holdings(own).chunks > 0
            lost = self.vectors.mend(own, **_space(collection), points=points)
        except CollectionUnknown:  # deleted meanwhile, or moved: another ledger has these vectors
            return False
        except (VectorsDamaged, DiskFull) as error:
            about = {"collection": own, "code": error.code}
            _log.error("vectors are not mended: %s", error.detail, extra=about)
        else:
            return lost
        return False

    def _lacks(self, collection: Collection) -> bool:
        """Whether it has fewer points than chunks: they are written before and removed after."""
        own = collection.name
        if collection.kind is not CollectionKind.DOCUMENTS:
            return False
        # deleted meanwhile; not mended; it takes long
        with suppress(CollectionUnknown, VectorsDamaged, VectorsUnavailable):
            before, points = self.documents.holdings(own).chunks, self._points(own)
            chunks = min(before, self.documents.holdings(own).chunks)
            return points < chunks and chunks - points > self.vectors.missing(own)
        return False

    def has_vectors(self, own: str) -> bool:
        """Whether the vector store has a collection."""
        try:
            self.vectors.count(own)
        except CollectionUnknown:
            return False
        return True

    def _points(self, own: str) -> int:
        try:
            return self.vectors.count(own)
        except CollectionUnknown:  # the store has lost it
            return 0

    def stats(self, collection: Collection, *, name: str) -> Statistics:
        """Return the counts and sizes of a collection that users know as ``name``."""
        held = self.documents.holdings(collection.name)
        sizes = self.vectors.sizes(collection.name)
        return Statistics(
            **CollectionInfo.settings(collection) | {"name": name},
            documents=held.documents,
            chunks=held.chunks,
            bytes_text=held.bytes_text,
            bytes_entries=held.bytes_entries,
            verified=held.verified,
            unreadable=held.unreadable,
            bytes_patches=sum(share.size_bytes for share in held.codecs.values()),
            bytes_vectors=sizes.vectors,
            bytes_terms=sizes.terms,
            fits=collection.fitting.number,
            generations=tuple(
                GenerationState.of(
                    one, records=held.slots.get(collection.artifacts.index(one.id), 0)
                )
                for one in collection.fitting.generations
            ),
            points=sizes.points,
            kept=self._kept(collection, sizes, cold=held.bytes_cold),
            codecs={
                codec.name.lower(): CodecShare(records=share.records, bytes=share.size_bytes)
                for codec, share in held.codecs.items()
            },
        )

    def _kept(self, collection: Collection, sizes: Sizes, *, cold: int) -> Kept:
        memory = self.documents.memory(collection.name)
        fitted = sum(one.bytes for one in collection.fitting.generations)
        disk = {} if sizes.disk is None else asdict(sizes.disk)
        return Kept(
            bytes_entries=memory.entries,
            bytes_texts=memory.texts,
            **{f"bytes_{part}": size for part, size in disk.items()},
            bytes_fitted=fitted,
            bytes_memory=memory.entries + memory.texts + fitted,
            bytes_cold=cold,
            bytes_disk=sum(disk.values()) if disk else None,
            bytes_tables=sum(
                self.models.codec_bytes(name)
                for name in collection.artifacts
                if name == artifact_of(name) != ""
            ),
        )


class _Space(TypedDict):
    """What a vector store is told of a collection."""

    dim: int
    precision: Precision
    int8_scale: float
    terms: bool


def _space(collection: Collection) -> _Space:
    return {
        "dim": collection.dim,
        "precision": collection.precision,
        "int8_scale": collection.int8_scale,
        "terms": collection.search is SearchMode.HYBRID,
    }


def _precision(request: CollectionParams, *, dim: int) -> Precision:
    """Return how vectors are stored: of an odd dimension by int8, unless something is asked for.

    A byte has two int4 codes.

    Raises:
        RequestInvalid: int4 was asked for an odd dimension.
    """
    if request.precision is not Precision.INT4 or dim % 2 == 0:
        return request.precision
    if "precision" in request.model_fields_set:
        raise RequestInvalid(f"expected an even dimension for precision int4, got {dim}")
    return Precision.INT8


def _same(known: Collection, request: CollectionParams) -> CollectionInfo:
    """Describe a collection that exists, if it has the settings that the request names."""
    if known.owner != request.owner:
        raise CollectionExists(f"another caller's collection is named {request.name!r}")
    named = request.model_fields_set & CollectionSettings.model_fields.keys()
    for setting in sorted(named - {"artifact"}):
        there, asked = getattr(known, setting), getattr(request, setting)
        if setting != "name" and there != asked:
            there, asked = (json.dumps(value, default=str) for value in (there, asked))
            raise CollectionExists(f"{request.name!r} exists with {setting} {there}, not {asked}")
    return CollectionInfo(**CollectionInfo.settings(known) | {"name": request.name})
