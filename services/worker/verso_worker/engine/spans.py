"""From start and end logits to spans of the context (Devlin et al. 2019, section 4.3).

The score of the answer t..u is ``start[t] + end[u]``; "no answer" scores ``start[0] + end[0]``, the
place of [CLS]. A context of several windows has the smallest null score of them: an answer in one
window is no less an answer because the others hold none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verso_worker.engine.windows import Row
from verso_worker.records.head_outputs import Found, Span

LONGEST_TOKENS = 30
"""Longest answer, as in the reference implementations for SQuAD."""

_CANDIDATES = 20  # starts and ends tried in each window: theirs too


def read(
    rows: Sequence[Row],
    logits: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]],
    *,
    count: int,
) -> Found:
    """Read the best spans out of all windows of one context.

    Args:
        rows: the windows.
        logits: start and end of each. Shape: (tokens of the window,) each, padding cut off.
        count: most spans to give.
    """
    spans: list[Span] = []
    null_score = np.inf
    for row, (start, end) in zip(rows, logits, strict=True):
        null_score = min(null_score, float(start[0] + end[0]))
        spans += _window(row, start, end)
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (-span.score, span.start, span.end)):
        if len(kept) == count:
            break
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return Found(kept, null_score)


def _window(row: Row, start: NDArray[np.float32], end: NDArray[np.float32]) -> list[Span]:
    part = slice(row.first, row.first + len(row.offsets))
    starts, ends = start[part], end[part]
    spans = []
    last = np.argsort(-ends, kind="stable")[:_CANDIDATES].tolist()
    for first in np.argsort(-starts, kind="stable")[:_CANDIDATES].tolist():
        for final in last:
            if first <= final < first + LONGEST_TOKENS:
                score = float(starts[first] + ends[final])
                spans.append(Span(row.offsets[first][0], row.offsets[final][1], score))
    return [span for span in spans if span.start < span.end]
