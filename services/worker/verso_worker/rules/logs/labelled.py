"""Return lines with a label of their stream: the rows that a head is trained on.

A head that reads vectors gets the vector of each line itself, as of a text that it classifies: the
vector of a statement is that of its template.

Blocks are spread over the buckets of the collection and read in their order, so that a part of them
is of all streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verso_core.errors import RecordCorrupt
from verso_core.jobs import Collection, train
from verso_core.jobs.logs.lines import line_id
from verso_core.jobs.train import Rows, RowsItem, RowsParams
from verso_core.segments import Segment
from verso_worker.records import line_arrays
from verso_worker.records.segments import BLOCK_LINES, set_bits
from verso_worker.rules.logs.bodies import bodies
from verso_worker.rules.logs.collection import LogCollection, LogStore
from verso_worker.rules.logs.counting import in_blocks
from verso_worker.rules.logs.segments import open_segments
from verso_worker.rules.ports.models import Models

_ENCODED_TOGETHER = 64
_SPREAD = 2654435761  # Knuth's multiplicative hash, 2^32 / golden ratio


@dataclass(frozen=True, slots=True)
class LineRows:
    """Reads rows of lines in blocks."""

    models: Models
    store: LogStore

    def run(self, asked: RowsParams, item: RowsItem, collection: Collection) -> Rows:
        """Return at most ``item.most`` lines of a range of buckets whose streams have the label."""
        log = self.store.open(collection.name, dim=collection.dim)
        ids: list[str] = []
        labels: list[str] = []
        texts: list[bytes] = []
        for name, label, text in self._lines(log, asked.label_key, item, collection.buckets):
            if len(ids) >= item.most:
                break
            ids.append(name)
            labels.append(label)
            texts.append(text)
        if asked.texts:
            rows = [
                train.Labelled(text.decode(errors="replace"), label)
                for text, label in zip(texts, labels, strict=True)
            ]
            data = train.pack_rows(rows)
        else:
            data = self._vectors(collection, texts)
        return Rows(ids=tuple(ids), labels=tuple(labels), data=data)

    def _lines(
        self, log: LogCollection, key: str, item: RowsItem, buckets: int
    ) -> Iterator[tuple[str, str, bytes]]:
        """Yield the id, label and text of lines that are not empty; damaged blocks are left out."""
        bitmaps = log.bitmaps()
        chosen = [
            (bucket, segment, block)
            for segment in in_blocks(log)
            if key in log.labels(segment.stream)
            for block in range(-(-segment.lines // BLOCK_LINES))
            if (bucket := _bucket(segment, block, buckets)) - item.first in range(item.count)
        ]
        for _, segment, block in sorted(chosen, key=lambda row: row[0]):
            try:
                [opened] = open_segments(self.store, log, [segment])
                lines = None if opened is None else opened.block(log, block).lines
                if lines is not None and log.holds_records(segment.stream):
                    lines, _ = bodies(lines)
            except RecordCorrupt:
                continue  # the scrub reports it
            if lines is None:
                continue
            gone = set_bits(bitmaps.get((segment.stream, segment.first)), segment.lines)
            for place, text in enumerate(line_arrays.rows(lines), start=block * BLOCK_LINES):
                if text.strip() and not gone[place]:
                    name = line_id(segment.stream, segment.first + place)
                    yield name, log.labels(segment.stream)[key], text

    def _vectors(self, collection: Collection, texts: list[bytes]) -> bytes:
        engine = self.models.writing(collection).recorder.engine
        return b"".join(
            engine.encode(texts[start : start + _ENCODED_TOGETHER]).vectors.astype("<f4").tobytes()
            for start in range(0, len(texts), _ENCODED_TOGETHER)
        )


def _bucket(segment: Segment, block: int, buckets: int) -> int:
    place = segment.stream + segment.first // BLOCK_LINES + block
    return place * _SPREAD % (1 << 32) % buckets
