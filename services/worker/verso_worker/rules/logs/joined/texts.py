"""Classify and reconstruct what a job names: lines of a log collection, or records beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from verso_core.errors import DocumentUnknown
from verso_core.jobs import Collection, Failed, Result, Slice
from verso_core.jobs.heads.classify import Classified, ClassifyItem, ClassifyParams
from verso_core.jobs.logs.lines import line_place
from verso_core.jobs.reconstruct import Guess, ReconstructItem, ReconstructParams, StoredText
from verso_worker.records.outputs import Timings
from verso_worker.rules.classification.classify import Classify
from verso_worker.rules.logs.reading import LineReader
from verso_worker.rules.reconstruct import Reconstruct


@dataclass(frozen=True, slots=True)
class JoinedTexts:
    """Reads lines and records by their ids."""

    lines: LineReader
    records_classify: Classify
    records_reconstruct: Reconstruct

    def classify(
        self,
        work: Slice[ClassifyParams, ClassifyItem],
        collection: Collection,
        *,
        job: str | None,
        timings: Timings,
    ) -> Result[Classified]:
        """Classify lines as the texts that they are, and records as in any collection."""
        found = self.records_classify.run(work, collection, job=job, timings=timings)
        unknown = _unknown(found.items)
        names = {n: item.id for n, item in work.accepted.items() if n in unknown and not item.chunk}
        with timings.phase("store"):
            lines = self.lines.texts(collection, list(dict.fromkeys(names.values())))
        failed = {n: lines[name] for n, name in names.items() if name in lines}
        texts = {n: one for n, one in failed.items() if not isinstance(one, Failed)}
        for n, fault in failed.items():
            if isinstance(fault, Failed):
                found.items[n] = fault
        if not texts:
            return found
        items = tuple(ClassifyItem(text=one.data) for one in texts.values())
        params = work.params.model_copy(update={"collection": None})
        read = self.records_classify.run(
            replace(work, params=params, items=items), None, job=job, timings=timings
        )
        for (n, one), labelled in zip(texts.items(), read.items, strict=True):
            found.items[n] = labelled.model_copy(update={"id": one.id})
        return found

    def reconstruct(
        self,
        work: Slice[ReconstructParams, ReconstructItem],
        collection: Collection,
        *,
        timings: Timings,
    ) -> Result[StoredText | Guess]:
        """Read lines by their ids, and what is no line as documents."""
        names = {
            n: item.id
            for n, item in work.accepted.items()
            if not item.vector and not item.chunk and line_place(item.id) is not None
        }
        with timings.phase("restore"):
            lines = self.lines.texts(collection, list(names.values()))
        found: dict[int, StoredText | Guess | Failed] = {
            n: lines[name] for n, name in names.items() if name in lines
        }
        others = [n for n in work.accepted if n not in found]
        if others:
            rest = replace(work, items=tuple(work.items[n] for n in others))
            texts = self.records_reconstruct.run(rest, collection, timings=timings)
            found |= dict(zip(others, texts.items, strict=True))
        return Result(work.answered(found))


def _unknown(items: Sequence[Any]) -> set[int]:
    """Return which results say that there is no such document."""
    return {
        n
        for n, one in enumerate(items)
        if isinstance(one, Failed) and one.error.code == DocumentUnknown.code
    }
