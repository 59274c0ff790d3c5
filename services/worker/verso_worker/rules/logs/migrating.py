"""Migrate the lines of a log collection.

Lines do not change when a collection moves to another space: both sides have the same ones. Only
statements get new vectors, in a list of the side that is filled. In the same space segments are
coded again with the newest tables, if that makes them smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_codecs.logs import blocks as block_codec
from verso_codecs.logs import parsing
from verso_core.errors import RecordCorrupt
from verso_core.jobs import Collection
from verso_core.jobs.logs.lines import line_id
from verso_core.segments import Segment
from verso_worker.records.segments import OPEN
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.counting import in_blocks
from verso_worker.rules.logs.scrub import bucket_of
from verso_worker.rules.logs.segments import Destination, Opened, coded, open_segments
from verso_worker.rules.ports.models import Model


@dataclass(frozen=True, slots=True)
class LogMigration:
    """Migrates lines in blocks."""

    store: LogStore

    def embed(self, target: Collection, model: Model) -> int:
        """Encode the statements that have no vector of the target's space; return how many."""

        def encode(texts: Sequence[bytes]) -> NDArray[np.float32]:
            vectors: NDArray[np.float32] = model.recorder.engine.encode(texts).vectors
            return vectors

        return self.store.open(target.name, dim=target.dim).embed(encode)

    def recode(self, collection: Collection, part: range) -> tuple[Counter[str], list[str]]:
        """Code the segments of some buckets again: those of all buckets are all segments.

        Returns:
            How many lines were copied and how many failed, and the first line of each damaged
            segment.
        """
        log = self.store.open(collection.name, dim=collection.dim)
        done: Counter[str] = Counter()
        damaged: list[str] = []
        for segment in in_blocks(log):
            if bucket_of(segment) % collection.buckets not in part:
                continue
            try:
                done["copied"] += segment.lines if self._recoded(log, segment) else 0
            except RecordCorrupt:
                log.refresh()
                if segment in log.overlapping(segment.stream, segment.first, segment.end):
                    done["failed"] += segment.lines
                    damaged.append(line_id(segment.stream, segment.first))
        return done, damaged

    def _recoded(self, log: LogCollection, segment: Segment) -> bool:
        """Code a segment with the newest tables; return whether it was replaced."""
        tables = log.tables()
        bitmap = log.bitmaps().get((segment.stream, segment.first), b"")
        [opened] = open_segments(self.store, log, [segment])
        if opened is None or _generations(opened) == {tables.generation}:
            return False
        parsed = parsing.parse(opened.lines(log, self.store.writers), log.shapes)
        parsed.number(log.number(parsed.new_rows))
        [new] = coded(
            parsed, log, tables,
            target=Destination(segment.stream, segment.first, opened.front.times),
            begin=0, end=parsed.count, is_open=bool(segment.flags & OPEN),
            pool=self.store.writers,
        )  # fmt: skip
        if len(new.data) >= opened.front.size_bytes + sum(map(len, opened.blocks)):
            return False
        row = new.segment, new.data, bitmap
        return log.swap([(segment, bitmap)], [row], tables)


def _generations(opened: Opened) -> set[int]:
    return {block_codec.header(block).generation for block in opened.blocks}
