"""Kinds of jobs that make, change, move and check whole collections."""

from __future__ import annotations

from dataclasses import dataclass

from verso_core.errors import CollectionUnknown
from verso_core.jobs import BucketRange, CollectionKind, Kind, NoItem, Result, Slice
from verso_core.jobs.collections import CollectionChangeParams, CollectionName, CollectionParams
from verso_core.jobs.fitting import FitItem, FitParams
from verso_core.jobs.migrate import MigrateItem, MigrateParams, MigrationResult
from verso_core.jobs.scrub import Scrubbed, ScrubParams
from verso_worker.rules.collections import collection_asked, collection_named
from verso_worker.rules.kinds.call import Call, Rule
from verso_worker.rules.kinds.composition import CollectionRules, LogRules
from verso_worker.rules.ports.outcome import SliceOutcome
from verso_worker.rules.ports.stores import Documents


@dataclass(frozen=True, slots=True)
class CollectionKinds:
    """Runs the kinds that name the collection that they are about."""

    rules: CollectionRules
    lines: LogRules
    documents: Documents

    def table(self) -> dict[Kind, Rule]:
        """Return the rule of each kind."""
        return {
            Kind.COLLECTION_CREATE: self._create,
            Kind.COLLECTION_CHANGE: self._change,
            Kind.COLLECTION_DELETE: self._delete,
            Kind.STATS: self._stats,
            Kind.SCRUB: self._scrub,
            Kind.MIGRATE: self._migrate,
            Kind.FIT: self._fit,
        }

    def _create(self, work: Slice[CollectionParams, NoItem], _: Call) -> SliceOutcome:
        if work.params.kind is CollectionKind.LOGS:
            self.lines.kernels.load()
        return SliceOutcome(Result([self.rules.collections.create(work.params)]))

    def _change(self, work: Slice[CollectionChangeParams, NoItem], call: Call) -> SliceOutcome:
        def sides() -> list[str]:
            collection_asked(self.documents, work.params.name, seq=call.seq)
            return self.rules.migrate.sides(work.params.name)

        changed = self.rules.collections.change(work.params, sides=sides)
        return SliceOutcome(Result([changed]))

    def _delete(self, work: Slice[CollectionName, NoItem], call: Call) -> SliceOutcome:
        deleted = self.rules.collections.delete(work.params.name, by=call.seq)
        return SliceOutcome(Result([deleted]))

    def _stats(self, work: Slice[CollectionName, NoItem], call: Call) -> SliceOutcome:
        name = work.params.name
        collection = collection_asked(self.documents, name, seq=call.seq)
        found = self.rules.collections.stats(collection, name=name)
        if collection.kind is CollectionKind.LOGS:
            found = self.lines.maintenance.statistics(collection, found)
        return SliceOutcome(Result([found]))

    def _migrate(self, work: Slice[MigrateParams, MigrateItem], call: Call) -> SliceOutcome:
        """Begin a migration, do a step of it, or remove what it left."""
        name, item, migrate = work.params.collection, work.only, self.rules.migrate
        collection_asked(self.documents, name, seq=call.seq)
        match work.params.step:
            case "begin":
                state = migrate.begin(name, item.artifact or "", item.settings or {})
                found = MigrationResult(migration=state)
            case "remove":
                found = MigrationResult(migration=migrate.remove(name))
            case "work":
                found = migrate.step(name, first=item.first, count=item.count, spend_s=item.spend_s)
        return SliceOutcome(Result([found]))

    def _fit(self, work: Slice[FitParams, FitItem], call: Call) -> SliceOutcome:
        name = work.params.collection
        collection = collection_asked(self.documents, name, seq=call.seq)
        return self.rules.fit.run(work, collection, name=name, on_progress=call.on_progress)

    def _scrub(self, work: Slice[ScrubParams, BucketRange], _: Call) -> SliceOutcome:
        """Scrub a range of buckets, or copy objects; a deleted collection has none."""
        name, item = work.params.collection, work.only
        try:
            collection = collection_named(self.documents, name)
            if item.to is not None:
                return SliceOutcome(Result([self.rules.scrub.copy(collection, item)]))
            if collection.kind is CollectionKind.LOGS and item.since is None:
                item = self.lines.maintenance.line_scrub.part(collection, item)
            found = self.rules.scrub.run(collection, item)
            if collection.kind is CollectionKind.LOGS:
                self.lines.kernels.wait()
                found = self.lines.maintenance.scrub(collection, item, found)
        except CollectionUnknown:
            if self.documents.named(name) is not None:
                raise  # it was not deleted: the vector store has lost it
            found = Scrubbed.of(item.count, {})
        return SliceOutcome(Result([found]))
