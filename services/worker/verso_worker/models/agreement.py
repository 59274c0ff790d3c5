"""Whether two versions say the same of the same items, by the kind of the job.

classify     the best label, withheld or not; of texts to which either gives a label that the other
             does not have nothing is known
answer       neither answers, or the best answers overlap in the same context
score        the order of each item and the next one: the scale of a score is the head's own
search       the first hit
embed        vectors with a cosine of at least .999
reconstruct  the same text
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from verso_core.jobs import AnyResult, Failed, Kind
from verso_core.jobs.heads.answer import Answered
from verso_core.jobs.heads.classify import Classification, Classified
from verso_core.jobs.heads.score import PairScore
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.search import Hits

_LEAST_COSINE = 0.999


class Agreement(NamedTuple):
    """On how many items two versions agree and differ."""

    agreed: int
    differed: int


def agreement(
    kind: Kind,
    canary: AnyResult,
    stable: AnyResult,
    *,
    head: str | None = None,
    labels: Collection[str] | None = None,
) -> Agreement:
    """Compare two results of the same slice; items that failed in either do not count.

    Args:
        kind: of the slice; of one that is not compared no item counts.
        canary: what the canary made of it.
        stable: what the stable version made of it.
        head: the head whose labels are compared.
        labels: labels that both versions of the head have; None for any.
    """
    items = [
        (one, other)
        for one, other in zip(canary.items, stable.items, strict=True)
        if not isinstance(one, Failed) and not isinstance(other, Failed)
    ]
    if kind is Kind.CLASSIFY:
        same = list(_same_labels(items, head, labels))
    elif kind is Kind.SCORE:
        same = _same_order(items)
    else:
        alike = _ALIKE.get(kind)
        same = [] if alike is None else [alike(one, other) for one, other in items]
    return Agreement(sum(same), len(same) - sum(same))


def _same_labels(
    items: Sequence[tuple[Classified, Classified]],
    head: str | None,
    labels: Collection[str] | None,
) -> Iterator[bool]:
    for one, other in items:
        first, second = _best(one, head), _best(other, head)
        known = labels is None or (first in labels and second in labels)
        if first is not None and second is not None and known:
            yield first == second


def _best(item: Classified, head: str | None) -> str | None:
    own: Classification | None = next((one for one in item.heads if one.head == head), None)
    return own.scores[0].label if own is not None and own.scores else None


def _same_order(items: Sequence[tuple[PairScore, PairScore]]) -> list[bool]:
    return [
        (one.score > next_one.score) == (other.score > next_other.score)
        for (one, other), (next_one, next_other) in pairwise(items)
    ]


def _same_answer(one: Answered, other: Answered) -> bool:
    if not (one.answered and other.answered):
        return one.answered == other.answered
    first, second = one.answers[0], other.answers[0]
    where = ("context", "id", "chunk")
    if any(getattr(first, name) != getattr(second, name) for name in where):
        return False
    return first.start_byte < second.end_byte and second.start_byte < first.end_byte


def _same_hit(one: Hits, other: Hits) -> bool:
    first, second = ([(hit.id, hit.chunk) for hit in own.hits[:1]] for own in (one, other))
    return first == second


def _same_vector(one: Embedded, other: Embedded) -> bool:
    first, second = (np.frombuffer(own.vector, "<f4") for own in (one, other))
    return bool(first @ second >= _LEAST_COSINE * np.linalg.norm(first) * np.linalg.norm(second))


def _same_text(one: Any, other: Any) -> bool:
    same: bool = (one.text, one.text_base64) == (other.text, other.text_base64)
    return same


_ALIKE: dict[Kind, Callable[[Any, Any], bool]] = {
    Kind.ANSWER: _same_answer,
    Kind.SEARCH: _same_hit,
    Kind.EMBED: _same_vector,
    Kind.RECONSTRUCT: _same_text,
}
