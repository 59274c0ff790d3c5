"""Take the labels that people have checked: they calibrate heads and score canaries."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from verso_core.errors import RequestInvalid, VersoError
from verso_core.heads import Head, Judged, Task, source_of
from verso_core.jobs import Collection, Failed, Kind, Result, Slice
from verso_core.jobs.heads.classify import Classified, ClassifyItem, ClassifyParams
from verso_core.jobs.heads.feedback import FeedbackItem, FeedbackParams, FeedbackTaken
from verso_core.registry import Channel
from verso_worker.records import confidence
from verso_worker.rules.ports.models import FeedbackRows, Heads

_FRESH_S = 5.0
"""How long other workers' feedback may wait until it counts."""
_ALL_LABELS = 1 << 30
_log = logging.getLogger(__name__)


class Learned:
    """The calibrations of heads, corrected by the labels that people have checked.

    Args:
        feedback: the labels.
    """

    def __init__(self, feedback: FeedbackRows) -> None:
        self._feedback = feedback
        self._known: dict[tuple[str, str], tuple[float, Head]] = {}

    def head(self, head: Head) -> Head:
        """Return a head as it is calibrated now; read again after ``_FRESH_S``."""
        key, now = (head.name, head.version), time.monotonic()
        known = self._known.get(key)
        if known is not None and now - known[0] < _FRESH_S:
            return known[1]
        rows = self._feedback.rows(*key)
        found = head
        if len(rows) >= confidence.FEWEST_JUDGED:
            calibration = confidence.learned(head.calibration, rows)
            found = head.model_copy(update={"calibration": calibration})
        self._known[key] = now, found
        return found

    def add(self, head: str, version: str, rows: Mapping[bytes, Judged]) -> None:
        """Store labels that people have checked; they count from now on."""
        if rows:
            self._feedback.add(head, version, rows)
            self._known.pop((head, version), None)


@dataclass(frozen=True, slots=True)
class Feedback:
    """Compares checked labels with what heads say, and stores whether they are equal."""

    heads: Heads
    learned: Learned

    def run(
        self,
        work: Slice[FeedbackParams, FeedbackItem],
        collection: Collection | None,
        *,
        classify: Callable[[Slice[ClassifyParams, ClassifyItem], str | None], Result[Classified]],
    ) -> Result[FeedbackTaken]:
        """Store whether the stable version's label of each item is the one given.

        A canary is scored by the same labels.

        Args:
            work: the slice; its items are texts, or name documents and records, with their labels.
            collection: the collection of the named documents; None for texts.
            classify: classifies them with the channels of a job; for None with stable versions.

        Raises:
            HeadUnknown, HeadInvalid: the head cannot be served.
            RequestInvalid: a label is none of the head's.
        """
        accepted = list(work.accepted.items())
        judged = [item for _, item in accepted]
        asked = ClassifyParams(
            heads=(work.params.head,),
            collection=work.params.collection,
            signals=True,
            top_k=_ALL_LABELS,
        )
        items = tuple(ClassifyItem(one.id, one.chunk, one.text) for one in judged)
        found: dict[int, FeedbackTaken | Failed] = {}
        rows: dict[bytes, Judged] = {}
        given = Slice(Kind.CLASSIFY, asked, items)
        served, results = self._by_one_version(
            work.params.head, judged, lambda: classify(given, None)
        )
        for (index, item), result in zip(accepted, results, strict=True):
            if isinstance(result, Failed):
                found[index] = result
                continue
            [one] = result.heads
            assert one.label is not None  # without accept_error none is withheld
            value = (one.signals or {}).get(served.calibration.accept_by)
            right = one.label == item.label
            if value is not None:
                rows[_digest(item, collection)] = Judged(source_of(one.label), value, right)
            found[index] = FeedbackTaken(
                head=one.head,
                version=one.version,
                channel=one.channel,
                id=result.id,
                chunk=result.chunk,
                label=one.label,
                right=right,
            )
        self.learned.add(served.name, served.version, rows)
        self._score_canary(served.name, judged, results, partial(classify, given))
        taken: list[FeedbackTaken | Failed] = work.answered(found)
        return Result(taken)

    def _by_one_version(
        self,
        name: str,
        accepted: Sequence[FeedbackItem],
        classify: Callable[[], Result[Classified]],
    ) -> tuple[Head, Sequence[Classified | Failed]]:
        """Return a head's stable version, and what it says of the items.

        If another version is promoted meanwhile, they are classified again: what one says must not
        calibrate the other.
        """
        while True:
            served = self.heads.get(name, task=Task.CLASSIFY, job=None).head
            for item in accepted:
                if item.label not in served.labels:
                    raise RequestInvalid(f"head {served.name} has no label {item.label!a}")
            found = classify().items
            said = (one.heads[0].version for one in found if isinstance(one, Classified))
            if all(version == served.version for version in said):
                return served, found

    def _score_canary(
        self,
        name: str,
        accepted: Sequence[FeedbackItem],
        stable: Sequence[Classified | Failed],
        classify: Callable[[str | None], Result[Classified]],
    ) -> None:
        """Note how well a head's canary and its stable version foresaw the labels, if it has one.

        An error of the canary is logged only: the caller's labels are on the stable version.
        """
        version = self.heads.canary(name, Channel.CANARY)
        if version is None:
            return
        try:
            canary = classify(Channel.CANARY).items
        except VersoError as error:
            _log.warning("canary of head %s is not scored: %s", name, error.detail)
            return
        if self.heads.canary(name, Channel.CANARY) != version:
            return  # the trial is another one's
        scores = [
            (_brier(one, item.label), _brier(other, item.label))
            for one, other, item in zip(canary, stable, accepted, strict=True)
            if not isinstance(one, Failed) and not isinstance(other, Failed)
        ]
        self.heads.judged(name, scores)


def _brier(item: Classified, label: str) -> float:
    [one] = item.heads
    return confidence.brier({score.label: score.score for score in one.scores}, label)


def _digest(item: FeedbackItem, collection: Collection | None) -> bytes:
    """Return what a labelled item is known by: it counts once."""
    where = "" if collection is None else f"{collection.name}\0{item.id}\0{item.chunk}"
    return hashlib.sha256(where.encode() + b"\0" + (item.text or b"")).digest()[:16]
