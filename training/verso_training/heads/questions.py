"""Questions that a reader is trained on: paragraphs in parts, and questions made up beside them.

Steps:

1. a question that is asked twice of one text has all answers of both; with an answer and without
   one it is dropped;
2. documents (titles) without a split get one by their hash, so that no document is trained on and
   measured on; of fewer than three documents the paragraphs are split instead;
3. some questions without an answer are made of those with one. Trained on are a share of them;
   the other parts get them only where the file holds no question without an answer, because the
   null threshold could not be chosen otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verso_core import questions
from verso_core.errors import TrainingDataInvalid
from verso_core.questions import Paragraph
from verso_training.heads import squad
from verso_training.heads.rows import RowSplit, portions
from verso_training.heads.squad import Question

_EVEN = 1.0
"""Questions made up for one with an answer, where the file has none without."""


@dataclass(frozen=True)
class Parts:
    """Questions by what they are for.

    Attributes:
        of: The questions of each part, those made up last.
        whole_documents: False where paragraphs of one document are in several parts.
        made_up: How many questions were made up, by part.
        contradicted: Questions dropped, asked with an answer and without one.
    """

    of: Mapping[RowSplit, tuple[Question, ...]]
    whole_documents: bool
    made_up: Mapping[RowSplit, int]
    contradicted: int

    def digest(self) -> str:
        """SHA-256 over the questions and their parts: the data a head was made of."""
        total = hashlib.sha256()
        for part, found in self.of.items():
            for row in found:
                total.update(f"{part}\0{row!r}\0".encode())
        return total.hexdigest()


def parts(
    paragraphs: Sequence[Paragraph],
    *,
    validation_share: float,
    test_share: float,
    made_up: float,
    seed: int,
) -> Parts:
    """Put questions in parts.

    Args:
        paragraphs: As :func:`verso_core.questions.check` lets them pass.
        validation_share: Of the questions of documents without a split.
        test_share: Likewise.
        made_up: Questions made up for training, as a share of those with an answer.

    Raises:
        TrainingDataInvalid: a part has no question with an answer.
    """
    questions.check(paragraphs)
    dropped = questions.contradicted(paragraphs)
    free = [p for p in paragraphs if p.split is None]
    whole = len({p.title for p in free}) >= len(RowSplit)
    split = _split(free, whole=whole, validation_share=validation_share, test_share=test_share)
    found: dict[RowSplit, list[Question]] = {part: [] for part in RowSplit}
    for paragraph, asked in _merged(paragraphs, dropped):
        part = split[paragraph] if paragraph.split is None else RowSplit(paragraph.split)
        found[part].append(asked)
    for part, rows in found.items():
        if not any(row.answers for row in rows):
            raise TrainingDataInvalid(
                f"expected questions with an answer for {part}, got none: {len(free)} of "
                f"{len(paragraphs)} paragraphs could be chosen from"
            )
    own = any(not row.answers for rows in found.values() for row in rows)
    count = {}
    for part, rows in found.items():
        share = made_up if part is RowSplit.TRAIN else 0.0
        has = sum(bool(row.answers) for row in rows)
        more = squad.mined(rows, count=round((share if own else _EVEN) * has), seed=seed)
        count[part] = len(more)
        rows += more
    return Parts(
        {part: tuple(rows) for part, rows in found.items()}, whole or not free, count, len(dropped)
    )


def _split(
    free: Sequence[Paragraph], *, whole: bool, validation_share: float, test_share: float
) -> dict[Paragraph, RowSplit]:
    keys = [(p.title if whole else p.context).encode() for p in free for _ in p.questions]
    owners = [p for p in free for _ in p.questions]
    if not keys:
        return {}
    found = portions(keys, validation_share=validation_share, test_share=test_share)
    return dict(zip(owners, found, strict=True))


def _merged(
    paragraphs: Iterable[Paragraph], dropped: set[tuple[str, str]]
) -> list[tuple[Paragraph, Question]]:
    """Every question once, with the paragraph that it stands at first."""
    found: dict[tuple[str, str], tuple[Paragraph, Question]] = {}
    for paragraph in paragraphs:
        for asked in paragraph.questions:
            key = (paragraph.context, asked.question)
            if key in dropped:
                continue
            first, before = found.get(key, (paragraph, None))
            answers = asked.answers if before is None else (*before.answers, *asked.answers)
            found[key] = (
                first,
                Question(
                    asked.id if before is None else before.key,
                    asked.question,
                    paragraph.context,
                    tuple(dict.fromkeys(answers)),
                    paragraph.title,
                ),
            )
    return list(found.values())
