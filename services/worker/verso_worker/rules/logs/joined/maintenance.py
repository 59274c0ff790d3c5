"""Add the lines of a log collection to what is counted and checked of the records beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from verso_core.jobs import BucketRange, Collection
from verso_core.jobs.scrub import SCRUB_COUNTS, Scrubbed
from verso_core.jobs.statistics import Statistics
from verso_worker.rules.logs.manage import LogManagement
from verso_worker.rules.logs.scrub import LogScrub


@dataclass(frozen=True, slots=True)
class JoinedMaintenance:
    """Counts and checks what log collections hold."""

    management: LogManagement
    line_scrub: LogScrub

    def statistics(self, collection: Collection, found: Statistics) -> Statistics:
        """Add what is held of lines to the statistics of a collection's records."""
        held = self.management.statistics(collection)
        kept = found.kept
        if kept is not None:
            memory = kept.bytes_memory + held.bytes_memory
            kept = kept.model_copy(
                update={
                    "bytes_lines": held.bytes_memory,
                    "bytes_memory": memory,
                    "bytes_cold": kept.bytes_cold + held.bytes_cold,
                }
            )
        return found.model_copy(
            update={
                "lines": held,
                "kept": kept,
                "documents": found.documents + held.lines,
                "verified": found.verified + held.verified,
                "bytes_text": found.bytes_text + held.bytes_text,
            }
        )

    def scrub(self, collection: Collection, asked: BucketRange, found: Scrubbed) -> Scrubbed:
        """Add what a scrub finds of the lines of the buckets that were scrubbed."""
        if asked.since is not None:
            return found
        read = replace(asked, count=found.buckets)
        lines = self.line_scrub.run(collection, read)
        counts = {name: getattr(found, name) + getattr(lines, name) for name in SCRUB_COUNTS}
        return Scrubbed.of(found.buckets, counts, (*found.ids, *lines.ids))
