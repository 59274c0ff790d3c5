"""Change and delete the lines of a log collection and the records beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verso_core.errors import KindUnsupported
from verso_core.jobs import Collection, Failed, Result, Slice
from verso_core.jobs.documents import (
    DeletedMatching,
    DeleteMatchingParams,
    PartItem,
    UpdateItem,
    UpdateParams,
)
from verso_core.jobs.ingest import Deleted, DeleteItem, DeleteParams
from verso_core.jobs.logs.lines import line_place
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.matching import Matching
from verso_worker.rules.ports.outcome import Delete, OnProgress, SliceOutcome
from verso_worker.rules.reader import Reader


@dataclass(frozen=True, slots=True)
class JoinedChanges:
    """Changes what log collections hold."""

    lines: LogManagement
    records: Matching
    reader: Reader

    def update(
        self, work: Slice[UpdateParams, UpdateItem], collection: Collection, *, seq: int
    ) -> SliceOutcome:
        """Change the metadata of records; a line has the labels of its stream."""
        lines = {n for n, item in work.accepted.items() if line_place(item.id) is not None}
        refused = Failed.of(
            KindUnsupported("a line has the labels of its stream: send it with others instead")
        )
        items = tuple(item for n, item in enumerate(work.items) if n not in lines)
        done = self.records.update(replace(work, items=items), collection, seq=seq)
        rest = iter(done.result.items)
        rows = [
            refused.model_copy(update={"id": work.accepted[n].id}) if n in lines else next(rest)
            for n in range(len(work.items))
        ]
        return replace(done, result=Result(rows, done.result.timings_ms))

    def delete(self, work: Slice[DeleteParams, DeleteItem], collection: Collection) -> SliceOutcome:
        """Delete lines and records by their ids."""
        ids = list(dict.fromkeys(item.id for item in work.accepted.values()))
        live = {*self.reader.live(collection, ids)}
        gone = self.lines.delete(collection, [one for one in ids if one not in live])
        found = {
            index: Deleted(id=item.id, deleted=item.id in live or item.id in gone)
            for index, item in work.accepted.items()
        }
        deletes = [Delete(one) for one in ids if one not in gone]
        return SliceOutcome(
            Result(work.answered(found)), deletes=deletes, collection=collection.name
        )

    def delete_matching(
        self,
        work: Slice[DeleteMatchingParams, PartItem],
        collection: Collection,
        *,
        seq: int,
        on_progress: OnProgress,
    ) -> SliceOutcome:
        """Delete the lines and records that a filter passes; the first part has all lines."""
        lines = 0
        if any(item.part == 0 for item in work.accepted.values()):
            lines = self.lines.delete_matching(
                collection, work.params.filter, on_progress=on_progress
            )
        done = self.records.delete(work, collection, seq=seq, on_progress=on_progress)
        for index, item in work.accepted.items():
            one = done.result.items[index]
            if item.part == 0 and isinstance(one, DeletedMatching):
                done.result.items[index] = DeletedMatching(deleted=one.deleted + lines)
        return done
