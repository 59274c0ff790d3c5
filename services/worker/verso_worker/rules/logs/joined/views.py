"""Count, group and export the lines of a log collection and the records beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verso_core.jobs import Collection, NoItem, Result, Slice
from verso_core.jobs.cluster import Clustered, ClusterParams, Method
from verso_core.jobs.documents import Counted, CountParams, Facets, FacetsParams
from verso_core.jobs.train import Rows, RowsItem, RowsParams
from verso_worker.rules.export_rows import ExportRows
from verso_worker.rules.grouping.cluster import Cluster
from verso_worker.rules.logs.counting import LineCounts
from verso_worker.rules.logs.grouping import LogCluster
from verso_worker.rules.logs.labelled import LineRows
from verso_worker.rules.matching import Matching
from verso_worker.rules.ports.outcome import OnProgress
from verso_worker.rules.ports.stores import Documents


@dataclass(frozen=True, slots=True)
class JoinedCounts:
    """Counts lines and records."""

    lines: LineCounts
    records: Matching

    def count(
        self,
        work: Slice[CountParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Counted]:
        """Count the lines and records that a filter passes."""
        lines = self.lines.by_stream(collection, work.params.filter, on_progress=on_progress)
        found = self.records.count(work, collection, on_progress=on_progress).only
        total = found.documents + lines.total()
        return Result([found.model_copy(update={"documents": total})])

    def facets(
        self,
        work: Slice[FacetsParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Facets]:
        """Count the values of labels over lines, and of metadata over records.

        Raises:
            RequestInvalid: a filter passes more records than are read.
        """
        lines = self.lines.by_stream(collection, work.params.filter, on_progress=on_progress)
        labels = self.lines.labels(collection)
        besides = [(dict(labels.get(stream, {})), count) for stream, count in lines.items()]
        return self.records.facets(work, collection, on_progress=on_progress, besides=besides)


@dataclass(frozen=True, slots=True)
class JoinedCluster:
    """Groups lines and records."""

    lines: LogCluster
    records: Cluster
    documents: Documents

    def run(
        self,
        work: Slice[ClusterParams, NoItem],
        collection: Collection,
        *,
        on_progress: OnProgress,
    ) -> Result[Clustered]:
        """Group lines by their statements, and records beside them.

        Raises:
            RequestInvalid: there are more records, or statements to compare, than are grouped.
        """
        asked = work.params
        found = self.lines.run(collection, asked)
        if self.documents.holdings(collection.name).documents:
            method = asked.method or Method.TEMPLATES
            named = replace(work, params=asked.model_copy(update={"method": method}))
            records = self.records.run(named, collection, on_progress=on_progress).only
            groups = sorted((*found.groups, *records.groups), key=lambda group: -group.size)
            found = Clustered(
                records=found.records + records.records,
                clusters=found.clusters + records.clusters,
                alone=found.alone + records.alone,
                unread=found.unread + records.unread,
                groups=tuple(groups[: asked.limit]),
            )
        return Result([found])


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Exports lines and records with a label."""

    lines: LineRows
    records: ExportRows

    def run(self, work: Slice[RowsParams, RowsItem], collection: Collection) -> Result[Rows]:
        """Return lines and records with a label, to train a head on."""
        found = self.records.run(work, collection)
        for index, item in work.accepted.items():
            records = found.items[index]
            if isinstance(records, Rows):
                left = replace(item, most=item.most - len(records.ids))
                lines = self.lines.run(work.params, left, collection)
                found.items[index] = Rows(
                    ids=(*records.ids, *lines.ids),
                    labels=(*records.labels, *lines.labels),
                    data=records.data + lines.data,
                )
        return found
