"""How good are the answers of a head, as shipped, on questions of articles that it never read?

Questions of SQuAD, split by article, are sent to a running platform (`verso up`), to
`POST /v1/answer`:

1. *Given*: with the paragraph that they were asked about. Half of them have no answer there.
2. *Found*: to a collection of the paragraphs of the eval articles; the head reads the records that
   the search finds, as many as by default. A question that had no answer in its paragraph may have
   one in another, so these count questions that have one.

The head's own threshold was chosen on the dev articles. So are the thresholds of the last table:
the least margin (score - null score) from which on so many of the dev questions that get an answer
get a right one. All figures are of the eval articles. An answer is right where its word F1 against
one of people's answers is 0.5 or more, as for the head's confidence. Brackets are 95 % bootstrap
intervals over paragraphs, whose questions are drawn together.

The limit is the processor, which reads each question with each paragraph.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import sheet
from numpy.typing import NDArray

from studies.benches.heads.asking import (
    Flags,
    Floats,
    Replies,
    Rows,
    interval,
    least_threshold,
    listed,
    parser_of,
    shown,
)
from studies.quality import squad
from studies.quality.squad import Part
from verso_client import Client, Document
from verso_core.jobs import CodecPolicy
from verso_training.heads import signals
from verso_training.heads.questions import Question
from verso_training.heads.reader import RIGHT_F1, exact, f1
from verso_training.heads.signals import Interval

_SEED = 1
_PRECISIONS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)


@dataclass(frozen=True)
class Read:
    """Questions with what a head replied.

    Attributes:
        questions: that were asked.
        words: word F1 of the first part, as if it were always given, and of the best of three.
        exacts: whether the first part is a right answer to the letter.
        margins: of the first part; minus infinity where there is none.
        given: whether the platform gave it.
    """

    questions: Sequence[Question]
    words: Floats
    best: Floats
    exacts: Floats
    margins: Floats
    given: Flags

    @classmethod
    def of(cls, questions: Sequence[Question], replies: Sequence[dict[str, Any]]) -> Read:
        """Mark replies; a question without an answer is marked right where none is given."""
        parts = [reply["parts"] for reply in replies]
        texts = [own[0]["text"] if own else "" for own in parts]
        return cls(
            questions,
            np.array([f1(t, q.answers) for t, q in zip(texts, questions, strict=True)]),
            np.array(
                [
                    max((f1(one["text"], q.answers) for one in own), default=0.0)
                    for own, q in zip(parts, questions, strict=True)
                ]
            ),
            np.array([exact(t, q.answers) for t, q in zip(texts, questions, strict=True)]),
            np.array([own[0]["margin"] if own else -np.inf for own in parts]),
            np.array([reply["answered"] for reply in replies]),
        )

    @property
    def has(self) -> Flags:
        """Whether the question has an answer."""
        return np.array([bool(one.answers) for one in self.questions])

    @property
    def right(self) -> Flags:
        """Whether the first part is right; never where there is no answer."""
        return np.asarray(self.has & (self.words >= RIGHT_F1))

    def marks(self, given: Flags, marks: Floats) -> Floats:
        """Return the mark of each question, where only some are given an answer; in percent."""
        return np.asarray(100 * np.where(given, self.has * marks, ~self.has))

    def figure(self, measure: Callable[[Rows], float]) -> Interval:
        """Return a figure with its interval over paragraphs."""
        return interval(measure, [one.context for one in self.questions])

    def mean(self, values: NDArray[Any], where: Flags) -> Interval:
        """Return the mean of values over some rows."""
        return self.figure(lambda rows: _mean(np.asarray(values, np.float64)[rows][where[rows]]))

    def figures(self) -> dict[str, Interval]:
        """Return what the head's own threshold comes to, in percent."""
        every, has = np.ones_like(self.given), self.has
        words = self.marks(self.given, self.words)
        found = {
            "EM": self.mean(self.marks(self.given, self.exacts), every),
            "F1": self.mean(words, every),
            "F1, with an answer": self.mean(words, has),
            "F1, the same, always given": self.mean(100 * self.words, has),
            "F1, the same, best of three parts": self.mean(100 * self.best, has),
            "no answer, refused": self.mean(100 * ~self.given, ~has),
            "given an answer": self.mean(100 * self.given, every),
            "right among the given": self.mean(100 * self.right, self.given),
            "right to the letter among the given": self.mean(100 * has * self.exacts, self.given),
            "AUROC": self.figure(self._auroc),
            "always no answer": self.mean(100 * ~has, every),
        }
        return {name: one for name, one in found.items() if not np.isnan(one.value)}

    def _auroc(self, rows: Rows) -> float:
        """Return how well the margin tells questions with an answer from the others."""
        margins, has = self.margins[rows], self.has[rows]
        if has.all() or not has.any():
            return float("nan")
        return 100 * signals.auroc(margins[has], margins[~has])

    def given_from(self, threshold: float) -> list[Interval]:
        """Return the share given, the share right among it, F1 and F1 of those with an answer."""
        given = self.margins >= threshold
        words, every = self.marks(given, self.words), np.ones_like(given)
        return [
            self.mean(100 * given, every),
            self.mean(100 * self.right, given),
            self.mean(words, every),
            self.mean(words, self.has),
        ]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def drawn(questions: Sequence[Question], count: int | None) -> list[Question]:
    """Return as many questions, drawn at random; all of them for None."""
    if count is None or count >= len(questions):
        return list(questions)
    return random.Random(_SEED).sample(list(questions), count)


def asked(
    client: Client,
    questions: Sequence[Question],
    *,
    head: str,
    replies: Replies,
    collection: str | None = None,
) -> Read:
    """Ask questions about their paragraphs, or a collection."""

    def ask(row: Question) -> dict[str, Any]:
        contexts = [row.context] if collection is None else None
        found = client.answer(row.question, contexts=contexts, collection=collection, head=head)
        parts = [
            {"text": one.text, "margin": one.score - one.null_score, "document": one.document}
            for one in found.answers
        ]
        return {"answered": found.answered, "threshold": found.null_threshold, "parts": parts}

    where = "given" if collection is None else "found"
    found = replies.all(questions, name=lambda row: f"{head}/{where}/{row.key}", ask=ask)
    return Read.of(questions, found)


@contextmanager
def stored(client: Client, paragraphs: Sequence[str], *, name: str | None) -> Iterator[str]:
    """Yield a collection of paragraphs; one of its own, deleted at the end, where unnamed."""
    collection = name or f"bench-{uuid.uuid4().hex[:12]}"
    try:
        if collection not in {one.name for one in client.collections()}:
            client.create_collection(collection, codec_policy=CodecPolicy.FAST)
            client.ingest(
                [Document(text, id=str(number)) for number, text in enumerate(paragraphs)],
                collection=collection,
            )
        yield collection
    finally:
        if name is None:
            client.delete_collection(collection)


def among(
    client: Client, questions: Sequence[Question], *, collection: str, replies: Replies
) -> Flags:
    """Return whether the search finds a record of the question's paragraph among the first five."""

    def ask(row: Question) -> list[str]:
        hits = client.search(row.question, collection=collection, limit=5).hits
        return [hit.text or "" for hit in hits]

    found = replies.all(questions, name=lambda row: f"search/{row.key}", ask=ask)
    return np.array(
        [
            any(text.strip() and text.strip() in row.context for text in own)
            for row, own in zip(questions, found, strict=True)
        ]
    )


def main() -> None:
    """Run the bench."""
    parser = parser_of(__doc__)
    parser.add_argument("--head", default="qa")
    parser.add_argument("--questions", type=int, help="of each part; default: all")
    parser.add_argument("--dev", type=int, help="of the dev articles; default: as many; 0: none")
    parser.add_argument("--found", type=int, default=400, help="questions to the collection")
    parser.add_argument("--collection", help="holds the paragraphs, or shall, and is kept")
    options = parser.parse_args()
    page = sheet.Sheet("answers")
    replies = Replies(options.replies)
    parts = {part: squad.read(options.data, part) for part in (Part.DEV, Part.EVAL)}
    most = dict.fromkeys(parts, options.questions)
    if options.dev is not None:
        most[Part.DEV] = options.dev
    paragraphs = list(dict.fromkeys(row.context for row in parts[Part.EVAL]))
    with Client(options.url, timeout_s=600.0) as client:
        read = {
            part: asked(client, drawn(rows, most[part]), head=options.head, replies=replies)
            for part, rows in parts.items()
        }
        answerable = drawn([row for row in parts[Part.EVAL] if row.answers], options.found)
        with stored(client, paragraphs, name=options.collection) as collection:
            found = asked(
                client, answerable, head=options.head, replies=replies, collection=collection
            )
            hit = among(client, answerable, collection=collection, replies=replies)
    given = read[Part.EVAL]
    own = {"given": given.figures(), "found": found.figures()}
    own["found"]["its paragraph is found"] = found.mean(100 * hit, np.ones_like(hit))
    for name, rows in (("given", given), ("found", found)):
        sheet.table(
            f"{options.head}, paragraphs {name}: {len(rows.questions)} questions",
            ("figure", "%"),
            [(title, shown(one)) for title, one in own[name].items()],
        )
    dev, trade = read[Part.DEV], []
    for precision in _PRECISIONS if dev.questions else ():
        cut = least_threshold(dev.margins, dev.right, precision=precision)
        if cut is not None:
            trade.append((precision, cut, dev.given_from(cut), given.given_from(cut)))
    titles = ("given", "right among it", "F1", "F1, with an answer")
    sheet.table(
        f"thresholds chosen on {len(dev.questions)} dev questions",
        ("asked for", "threshold", "given, dev", *titles),
        [
            (f"{100 * p:.0f} %", f"{cut:.2f}", f"{one[0].value:.1f}", *map(shown, other))
            for p, cut, one, other in trade
        ],
    )
    page.finish(
        {
            "questions": {str(part): len(one.questions) for part, one in read.items()}
            | {"found": len(found.questions), "paragraphs": len(paragraphs)},
            "figures": {
                name: {title: listed(one) for title, one in rows.items()}
                for name, rows in own.items()
            },
            "thresholds": [
                {
                    "asked": p,
                    "threshold": cut,
                    "dev": [listed(x) for x in one],
                    "eval": [listed(x) for x in other],
                }
                for p, cut, one, other in trade
            ],
        }
    )


if __name__ == "__main__":
    main()
