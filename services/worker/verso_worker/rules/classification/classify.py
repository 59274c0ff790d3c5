"""Classify texts and stored records with the heads that a job names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verso_core.heads import Task
from verso_core.jobs import Collection, Failed, Result, Slice
from verso_core.jobs.heads.classify import Classification, Classified, ClassifyItem, ClassifyParams
from verso_worker.records.outputs import Timings
from verso_worker.rules.classification.feedback import Learned
from verso_worker.rules.classification.labelling import labelled
from verso_worker.rules.classification.subjects import Faults, Subject, SubjectReader, narrowed
from verso_worker.rules.ports.models import Heads


@dataclass(frozen=True, slots=True)
class Classify:
    """Runs classifiers."""

    subjects: SubjectReader
    heads: Heads
    learned: Learned

    def run(
        self,
        work: Slice[ClassifyParams, ClassifyItem],
        collection: Collection | None,
        *,
        job: str | None,
        timings: Timings,
    ) -> Result[Classified]:
        """Classify the items of a slice with every head that it names.

        Args:
            work: the slice; its items are texts, or name documents and records.
            collection: the collection of the named documents; None for texts.
            job: chooses the channel of each head; None for the stable version.
            timings: added to.

        Raises:
            HeadUnknown, HeadInvalid: a head cannot be served.
            SpaceMismatch: a head that reads vectors cannot read the collection's.
            RequestInvalid: a head has no threshold for the error rate.
        """
        asked = work.params
        served = [self.heads.get(name, task=Task.CLASSIFY, job=job) for name in asked.heads]
        items, faults = work.accepted, Faults()
        with timings.phase("store"):
            subjects = self.subjects.find(items, collection, faults)
        labels: dict[int, list[Classification]] = {subject.index: [] for subject in subjects}
        by_portion: dict[tuple[Any, ...], list[Subject]] = {}
        for head in served:
            portion = asked.chunk or head.head.chunk
            read = portion, head.head.reads, head.head.max_chunks
            if read not in by_portion:
                by_portion[read] = [narrowed(head, one, portion) for one in subjects]
            sound = [one for one in by_portion[read] if one.index not in faults]
            ready = self.subjects.load(head, sound, collection, asked, faults, timings)
            head = replace(head, head=self.learned.head(head.head))
            with timings.phase("infer"):
                found = labelled(head, ready, asked) if ready else []
            for subject, one in zip(ready, found, strict=True):
                labels[subject.index].append(one)
        results = {index: _result(item, labels, faults, index) for index, item in items.items()}
        answered: list[Classified | Failed] = work.answered(results)
        return Result(answered)


def _result(
    item: ClassifyItem,
    labels: Mapping[int, Sequence[Classification]],
    faults: Faults,
    index: int,
) -> Classified | Failed:
    named: dict[str, Any] = {"id": item.id} if item.id else {}
    if item.chunk is not None:
        named["chunk"] = item.chunk
    if index in faults:  # the error of an item whose document does not exist has no id
        return Failed.of(faults[index], **(named if index in labels else {}))
    return Classified(**named, heads=tuple(labels[index]))
