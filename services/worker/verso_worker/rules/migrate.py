"""Move a collection to another artifact, document by document, while it is searched and written to.

In the **same space** only the codec changes: each document is coded again by the new one, with the
tables that the collection has fitted to it, read back from the stores, and swapped in under its
sequence number, unless it was written again meanwhile.

Into **another space**, or with other settings, a second collection is filled. A step compares a
range of buckets of both. A document that differs is read by the artifact that wrote it, encoded and
coded by the new one, put, read back from the stores and compared; a document that the source no
longer has is removed. A document keeps its sequence number, so that waiting writes keep their
order. Passes are repeated until both agree; the keeper seals the source for the last one and
switches the name.

The lines of a log collection are of both sides: see :mod:`verso_worker.rules.logs.migrating`.

A step has no state of its own: after a crash the next step compares again and continues.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from verso_core.errors import (
    CollectionExists,
    CollectionUnknown,
    EngineUnavailable,
    MigrationRefused,
    PatchCorrupt,
    VersoError,
)
from verso_core.jobs import Collection, CollectionKind, SearchMode
from verso_core.jobs.fitting import Fitting
from verso_core.jobs.migrate import FAILED_LISTED, Migration, MigrationResult, Stage
from verso_core.record import Entry, Flag, point_ids
from verso_worker.rules.collections import collection_named
from verso_worker.rules.ingest import Ingest, Source, as_written
from verso_worker.rules.logs.migrating import LogMigration
from verso_worker.rules.ports.models import Model, Models
from verso_worker.rules.ports.outcome import Write
from verso_worker.rules.ports.stores import Documents, Vectors
from verso_worker.rules.reader import Chunk, Reader, join
from verso_worker.rules.scrub import Stored, batches, next_page

CURRENT = "current"
"""Names the artifact that new collections use."""

_PREFIX = "migrated-"
_TEXT_RATIO = 4  # a text is about four times as long as its patch
_BEGIN_TRIES = 5
_COUNTED = ("documents", "copied", "removed", "failed")


class Migrations(Protocol):
    """The ledger's migrations; their signatures are repeated because rules import no Redis."""

    def get(self, collection: str) -> Migration | None:
        """Return a collection's newest migration."""

    def begin(
        self,
        state: Migration,
        *,
        seen: Migration | None,
        source: Collection,
        target: Collection | None,
        room: str = ...,
    ) -> bool:
        """Start a migration if its source and the newest one are as they were seen.

        ``room`` is the target's token.
        """

    def move(self, seen: Migration, state: Migration | None, *, also: str = ...) -> bool:
        """Replace the state ``seen``; None deletes it."""

    def drop(self, seen: Migration, name: str) -> bool:
        """Remove the source or the target of a migration, if it stands as seen; whether it did."""

    def graft(
        self,
        state: Migration,
        document: str,
        *,
        seq: int | None,
        entry: bytes | None,
        text: bytes | None,
    ) -> bool:
        """Write a document of the target, if the source's still has this sequence number."""


@dataclass(frozen=True, slots=True)
class Migrate:
    """Starts migrations, runs their steps, and removes the collections that they leave."""

    models: Models
    vectors: Vectors
    documents: Documents
    migrations: Migrations
    reader: Reader
    ingest: Ingest
    lines: LogMigration

    def begin(self, name: str, artifact: str, settings: Mapping[str, str]) -> Migration:
        """Start a migration to an artifact and settings, or return the running one.

        Args:
            name: the collection, as users know it.
            artifact: ``current``, a codec id, or an artifact id.
            settings: of the collection, by name; those that are left out stay.

        Raises:
            MigrationRefused: no such artifact is served here, or the collection cannot be moved.
            MigrationRefused: another migration is running, or the collection needs none.
        """
        for _ in range(_BEGIN_TRIES):
            if (running := self._running(name, artifact, settings)) is not None:
                return running
        raise MigrationRefused(f"the collection {name!r} is being changed; ask again")

    def _running(self, name: str, artifact: str, settings: Mapping[str, str]) -> Migration | None:
        """Start a migration as :meth:`begin` does; None if its settings changed meanwhile."""
        seen = self.migrations.get(name)
        source = collection_named(self.documents, name)
        model = self._model(artifact)
        if seen is not None and seen.stage is not Stage.DONE:
            return self._again(seen, model, settings)
        if seen is not None and not seen.old_removed and not seen.in_place:
            raise MigrationRefused(f"the old vectors of {name!r} are still kept; remove them first")
        wanted = Collection.model_validate(source.model_dump() | dict(settings))
        in_place = source.space == model.space and wanted == source
        if in_place and source.artifacts == (model.codec,) and not _is_log(source):
            raise MigrationRefused(f"{name!r} is all of codec {model.codec} already")
        if in_place and source.with_slot(model.codec) is None:
            raise MigrationRefused(f"all artifact slots of {name!r} are in use; name one of them")
        target, room = (None, "") if in_place else self._target(wanted, model)
        state = Migration(
            collection=name,
            source=source.name,
            target=source.name if target is None else target.name,
            codec=model.codec,
            stage=Stage.RECODE if target is None else Stage.COPY,
            buckets=source.buckets,
            started=time.time(),
        )
        if self.migrations.begin(state, seen=seen, source=source, target=target, room=room):
            return state
        if target is not None:
            self.vectors.drop(target.name)
        return None

    def step(self, name: str, *, first: int, count: int, spend_s: float) -> MigrationResult:
        """Migrate the buckets from ``first`` on, and return the counts.

        It ends after ``count`` buckets, or sooner after ``spend_s`` seconds; ``buckets`` of the
        result counts the migrated ones, at least one.

        Raises:
            MigrationRefused: no migration of this collection is running.
            VersoError: a store or an engine is unavailable; trying again may help.
        """
        state = self.migrations.get(name)
        if state is None or not state.running:
            raise MigrationRefused(f"no migration of {name!r} is under way")
        source, target = (
            self.documents.collection(state.source),
            self.documents.collection(state.target),
        )
        model = self.models.get(state.codec)
        done: Counter[str] = Counter()
        unread: list[str] = []
        end, at, page = time.monotonic() + spend_s, first, 1
        last = min(first + count, source.buckets)
        while at < last and (at == first or time.monotonic() < end):
            part, before = range(at, min(at + page, last)), done["documents"]
            if _is_log(source):
                sides = source, target
                self._lines(state, sides, model=model, part=part, done=done, unread=unread)
            if state.in_place:
                self._recode(source, model, part=part, done=done, unread=unread)
            else:
                self._copy(state, (source, target), model, part=part, done=done, unread=unread)
            page = next_page(page, width=len(part), documents=done["documents"] - before)
            at = part.stop
        counts = {what: done[what] for what in _COUNTED}
        return MigrationResult(
            **counts, buckets=max(1, at - first), ids=tuple(unread[:FAILED_LISTED])
        )

    def _lines(
        self,
        state: Migration,
        sides: tuple[Collection, Collection],
        *,
        model: Model,
        part: range,
        done: Counter[str],
        unread: list[str],
    ) -> None:
        """Migrate the lines of buckets; each pass into another space begins with all statements."""
        source, target = sides
        if state.in_place:
            counts, damaged = self.lines.recode(source, part)
            done.update(counts)
            unread += damaged
        elif part.start == 0:
            self.lines.embed(target, model)

    def sides(self, name: str) -> list[str]:
        """Return the own name of a collection, and of the one that a migration of it fills.

        Raises:
            CollectionUnknown: there is no such collection.
        """
        state = self.migrations.get(name)
        source = collection_named(self.documents, name).name
        if state is None or state.stage is Stage.DONE or state.in_place:
            return [source]
        return [source, state.target] if state.target != source else [source]

    def remove(self, name: str) -> Migration | None:
        """Remove the source of a migration that is done, or the target of one that is not.

        Raises:
            MigrationRefused: there is nothing to remove.
            CollectionBusy: a backup is being taken.
        """
        state = self.migrations.get(name)
        if state is None or state.old_removed:
            raise MigrationRefused(f"no migration of {name!r} has left anything")
        done = state.stage is Stage.DONE
        after = state.model_copy(update={"old_removed": True}) if done else None
        left = state.source if done else state.target
        if not state.in_place and self.migrations.drop(state, left):
            self.vectors.drop(left)
        if not self.migrations.move(state, after, also="none" if done else "open"):
            raise MigrationRefused(f"the migration of {name!r} has just moved on; ask again")
        return after

    def _again(self, seen: Migration, model: Model, settings: Mapping[str, str]) -> Migration:
        """Return a running migration, or start a blocked one again."""
        if seen.codec != model.codec:
            raise MigrationRefused(f"{seen.collection!r} is being migrated to codec {seen.codec}")
        target = self.documents.collection(seen.target)
        for setting, wanted in settings.items():
            if (there := getattr(target, setting)) != wanted:
                raise MigrationRefused(
                    f"{seen.collection!r} is being migrated to {there} {setting}"
                )
        if seen.running:
            return seen
        stage = Stage.RECODE if seen.in_place else Stage.COPY
        fresh = {"stage": stage, "number": 1, "bucket": 0, "moved": 0, "failed": 0, "unread": ()}
        state = seen.model_copy(update=fresh | {"started": time.time(), "ended": None})
        if not self.migrations.move(seen, state):
            raise MigrationRefused(f"the migration of {seen.collection!r} has just moved on")
        return state

    def _model(self, artifact: str) -> Model:
        if artifact == CURRENT:
            return self.models.current()
        try:
            return self.models.get(artifact.rpartition("-")[2])
        except EngineUnavailable as exc:
            raise MigrationRefused(
                f"expected current, or the id of an artifact or codec kept here, got {artifact!r}"
            ) from exc

    def _target(self, wanted: Collection, model: Model) -> tuple[Collection, str]:
        """Create the empty collection that a migration fills; return it and its token.

        ``wanted`` is the source with the settings that the target will have.
        """
        made = wanted.model_copy(
            update={
                "name": _PREFIX + secrets.token_hex(8),
                "space": model.space,
                "dim": model.dim,
                "int8_scale": model.int8_scale,
                "artifacts": (model.codec,),
                "checksum_key": secrets.token_hex(16),
                "fitting": Fitting(),
            }
        )
        room = self.documents.collection_room(made.name)
        try:
            self.vectors.create(
                made.name,
                dim=made.dim,
                precision=made.precision,
                int8_scale=made.int8_scale,
                terms=made.search is SearchMode.HYBRID,
            )
            self.vectors.index(made.name, made.indexes)
        except CollectionExists as exc:
            raise MigrationRefused("a collection of this very name exists; ask again") from exc
        return made, room

    def _copy(
        self,
        state: Migration,
        sides: tuple[Collection, Collection],
        model: Model,
        *,
        part: range,
        done: Counter[str],
        unread: list[str],
    ) -> None:
        source, target = sides
        there = dict(self.documents.entries(target.name, first=part.start, count=len(part)))
        here = dict(self.documents.entries(source.name, first=part.start, count=len(part)))
        done["documents"] += len(here)
        for document in there.keys() - here.keys():
            done["removed"] += self.migrations.graft(
                state, document, seq=None, entry=None, text=None
            )
        behind = [row for row in here.items() if _seq(row[1]) != _seq(there.get(row[0]))]
        for batch in batches(behind, weight=_TEXT_RATIO):
            texts = self._texts(source, batch, done=done, unread=unread)
            for write, seq in self._coded(target, model, texts):
                done["copied"] += self.migrations.graft(
                    state, write.document, seq=seq, entry=write.entry, text=write.text
                )

    def _recode(
        self,
        source: Collection,
        model: Model,
        *,
        part: range,
        done: Counter[str],
        unread: list[str],
    ) -> None:
        model = self.ingest.generations.coding(source, model)
        slot = self.documents.collection_artifact(source.name, model.codec)
        source = self.documents.collection(source.name)
        here = dict(self.documents.entries(source.name, first=part.start, count=len(part)))
        done["documents"] += len(here)
        behind = [row for row in here.items() if _slots(row[1]) - {slot}]
        for batch in batches(behind, weight=_TEXT_RATIO):
            texts = self._texts(source, batch, done=done, unread=unread)
            for write, _ in self._coded(source, model, texts):
                verified = Entry.unpack(here[write.document]).flags & Flag.VERIFIED
                entry = _flagged(write.entry, verified)
                done["copied"] += self.documents.repair(
                    source.name,
                    write.document,
                    old=here[write.document],
                    entry=entry,
                    text=write.text,
                )

    def _texts(
        self,
        source: Collection,
        batch: Sequence[Stored],
        *,
        done: Counter[str],
        unread: list[str],
    ) -> dict[str, tuple[Source, Entry]]:
        """Read documents by the artifacts that wrote them; count those that cannot be moved.

        Those are documents that cannot be read, that have a damaged entry, or whose points all lack
        the metadata whose hash the entry holds: a new entry would hash the wrong metadata.
        """
        texts = self.reader.texts(source, [document for document, _ in batch])
        payloads = self._payloads(source, texts)
        found: dict[str, tuple[Source, Entry]] = {}
        for name, text in texts.items():
            if isinstance(text, tuple) and name in payloads and not text[0].damaged:
                found[name] = (Source.stored(name, payloads[name], text[1]), text[0])
            elif isinstance(text, tuple):
                done["failed"] += 1
                unread.append(name)
            elif text.retryable:
                raise text
            elif not isinstance(text, CollectionUnknown) and text.code != "document_unknown":
                done["failed"] += 1
                unread.append(name)
        return found

    def _payloads(
        self, source: Collection, texts: Mapping[str, tuple[Entry, bytes] | VersoError]
    ) -> dict[str, dict[str, Any]]:
        """Return for each document a payload with its metadata and time, if there is one."""
        key = bytes.fromhex(source.checksum_key)
        entries = {name: text[0] for name, text in texts.items() if isinstance(text, tuple)}
        points = {name: point_ids(source.name, name, entry) for name, entry in entries.items()}
        every = [point for own in points.values() for point in own]
        payloads = self.vectors.payloads(source.name, every) if every else {}
        found: dict[str, dict[str, Any]] = {}
        for name, entry in entries.items():
            carried = [payloads[point] for point in points[name] if point in payloads]
            told = (as_written(payload, entry, key=key) for payload in carried)
            right = [payload for payload in told if payload is not None]
            if right or not entry.about:
                found[name] = right[0] if right else {}
        return found

    def _coded(
        self, target: Collection, model: Model, texts: dict[str, tuple[Source, Entry]]
    ) -> Iterator[tuple[Write, int]]:
        """Store texts with a model, and yield each write once the stores have returned its text."""
        sources = {name: (source, entry.seq) for name, (source, entry) in texts.items()}
        for write in self.ingest.store(list(sources.values()), target, model=model):
            source, seq = sources[write.document]
            proved = self._proved(target, write, source.text)
            if proved is None:
                [plain] = self.ingest.store([(source, seq)], target, model=model, plain=True)
                proved = self._proved(target, plain, source.text)
            if proved is None:
                raise EngineUnavailable("a migrated document does not read back")
            yield proved, seq

    def _proved(self, target: Collection, write: Write, text: bytes) -> Write | None:
        """Return a write, marked as verified, if the stores return its text; else None."""
        entry = Entry.unpack(write.entry)
        parts = self.reader.chunks(
            target, [Chunk(write.document, entry, n) for n in range(len(entry.records))]
        )
        if join(entry, parts) != text:
            return None
        return Write(write.document, _flagged(write.entry, Flag.VERIFIED), write.text)


def _is_log(collection: Collection) -> bool:
    return collection.kind is CollectionKind.LOGS


def _flagged(entry: bytes, flags: Flag) -> bytes:
    return replace(Entry.unpack(entry), flags=flags).pack()


def _seq(data: bytes | None) -> int | None:
    try:
        return None if data is None else Entry.unpack(data).seq
    except PatchCorrupt:
        return -1


def _slots(data: bytes) -> set[int]:
    try:
        return {record.slot for record in Entry.unpack(data).records}
    except VersoError:
        return {-1}
