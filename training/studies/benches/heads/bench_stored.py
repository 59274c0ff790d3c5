"""Does a stored document get the labels of its text, as shipped?

The test texts of the log sets, each once, are classified by a running platform (`verso up`): as
texts, and as documents of a hybrid collection of each `--precision`. Nothing is chosen. Reported
are accuracy and macro-F1 of both, how many have the same label, and the largest difference of a
score. Brackets are 95 % bootstrap intervals over the texts. A set of more texts than `--rows` is
represented by as many, drawn at random.

The documents are then classified with each `--accept-error`: the share that is given a label, the
errors among it with the upper end of their 95 % interval (Clopper and Pearson), and the expected
calibration error (ECE) of all with its median by chance.

The limit is the processor, which encodes every chunk, of documents before they are stored.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sheet

from studies.benches.heads.asking import Replies, interval, listed, parser_of, shown
from studies.quality import sets
from verso_client import Client, Document
from verso_core.jobs import CodecPolicy, Precision, SearchMode
from verso_core.jobs.heads.classify import Classified
from verso_training.heads import confidence
from verso_training.heads.confidence.reports import most_errors
from verso_training.heads.rows import Row, RowSplit
from verso_training.heads.signals import Interval

_SEED = 1
_BATCH = 32
_UNLABELLED = "unlabelled"
_ROUNDS = 2000
_RATES = (0.01, 0.02, 0.05, 0.1, 0.2)


def texts(data: Path, name: str, *, most: int) -> list[Row]:
    """Return labelled test rows of a set, each text once."""
    rows = {
        row.text: row
        for row in reversed(sets.logs(data, name).of(RowSplit.TEST))
        if row.label != _UNLABELLED
    }
    found = list(rows.values())[::-1]
    return found if len(found) <= most else random.Random(_SEED).sample(found, most)


def told(found: Sequence[Classified]) -> list[dict[str, Any]]:
    """Return what is compared of classifications: label, confidence, the score of every label."""
    own = []
    for one in found:
        [said] = one.heads
        scores = {score.label: score.score for score in said.scores}
        own.append({"label": said.label, "confidence": said.confidence, "scores": scores})
    return own


def classified(
    client: Client, rows: Sequence[Row], *, head: str, name: str, replies: Replies, where: str = ""
) -> list[dict[str, Any]]:
    """Classify rows as texts, or as the documents of a collection that are named by number."""
    starts = range(0, len(rows), _BATCH)

    def ask(start: int) -> list[dict[str, Any]]:
        part = rows[start : start + _BATCH]
        if where:
            ids = [str(start + number) for number in range(len(part))]
            return told(client.classify(head, ids=ids, collection=where, top_k=1000))
        return told(client.classify(head, texts=[str(row.text) for row in part], top_k=1000))

    found = replies.all(starts, name=lambda start: f"{head}/{name}/{start}", ask=ask)
    return [one for own in found for one in own]


def as_stored(
    client: Client,
    rows: Sequence[Row],
    precision: Precision,
    *,
    head: str,
    name: str,
    replies: Replies,
    rates: Sequence[float] = (),
) -> tuple[list[dict[str, Any]], dict[float, list[str | None]]]:
    """Store rows in a collection of their own and classify them there.

    Returns:
        What is said of each, and for each error rate the labels that are given; None is withheld.
    """
    collection = f"bench-{uuid.uuid4().hex[:12]}"
    client.create_collection(
        collection, precision=precision, search=SearchMode.HYBRID, codec_policy=CodecPolicy.FAST
    )
    try:
        documents = [Document(str(row.text), id=str(at)) for at, row in enumerate(rows)]
        client.ingest(documents, collection=collection)
        said = classified(client, rows, head=head, name=name, replies=replies, where=collection)

        def given(rate: float) -> list[str | None]:
            ids = [str(at) for at in range(len(rows))]
            return [
                one.heads[0].label
                for start in range(0, len(ids), _BATCH)
                for one in client.classify(
                    head, ids=ids[start : start + _BATCH], collection=collection, accept_error=rate
                )
            ]

        kept = replies.all(rates, name=lambda rate: f"{head}/{name}/accept-{rate}", ask=given)
        return said, dict(zip(rates, kept, strict=True))
    finally:
        client.delete_collection(collection)


def accuracy(found: Sequence[dict[str, Any]], gold: Sequence[str]) -> Interval:
    """Return how many labels are right, in percent, with its interval."""
    right = np.array([one["label"] == label for one, label in zip(found, gold, strict=True)])
    return interval(lambda rows: 100 * float(right[rows].mean()), range(len(right)))


def macro_f1(found: Sequence[dict[str, Any]], gold: Sequence[str]) -> Interval:
    """Return the mean F1 of the labels, in percent, with its interval."""
    names = sorted({*gold, *(one["label"] for one in found)})
    said = np.array([names.index(one["label"]) for one in found])
    truth = np.array([names.index(label) for label in gold])
    return interval(
        lambda rows: 100 * confidence.macro_f1(said[rows], truth[rows]), range(len(said))
    )


def accepted(found: Sequence[str | None], gold: Sequence[str]) -> dict[str, float]:
    """Return the share that is given a label, and the share of errors among it with its most."""
    own = [(label, truth) for label, truth in zip(found, gold, strict=True) if label is not None]
    wrong = sum(label != truth for label, truth in own)
    return {
        "share": 100 * len(own) / len(found),
        "wrong": 100 * wrong / max(1, len(own)),
        "at most": 100 * most_errors(wrong, of=len(own)),
    }


def calibration(found: Sequence[dict[str, Any]], gold: Sequence[str]) -> tuple[Interval, float]:
    """Return the calibration error with its interval, and its median by chance, in percent."""
    sure = np.array([one["confidence"] for one in found], np.float32)
    right = np.array([one["label"] == label for one, label in zip(found, gold, strict=True)])
    error = confidence.calibration_error(sure, right, rounds=_ROUNDS)
    percent = Interval(*(100 * x for x in (error.value, error.low, error.high)))
    return percent, 100 * confidence.by_chance(sure, rounds=_ROUNDS)[0]


def main() -> None:
    """Run the bench."""
    parser = parser_of(__doc__)
    parser.add_argument("--head", default="log-failures")
    parser.add_argument("--rows", type=int, default=300, help="most texts of a set")
    parser.add_argument("--set", action="append", help="default: all four")
    parser.add_argument("--precision", action="append", type=Precision, help="default: int8")
    parser.add_argument("--accept-error", type=float, nargs="*", default=list(_RATES))
    options = parser.parse_args()
    page = sheet.Sheet("stored")
    replies, rates = Replies(options.replies), options.accept_error
    table, kept, figures = [], [], []
    with Client(options.url, timeout_s=600.0) as client:
        for name in options.set or sets.LOG_SETS:
            rows = texts(options.data, name, most=options.rows)
            gold = [f"{sets.LOG_FAMILIES[name]}/{row.label}" for row in rows]
            at = {"head": options.head, "replies": replies}
            text = classified(client, rows, name=f"{name}-{len(rows)}/text", **at)
            for precision in options.precision or [Precision.INT8]:
                key = f"{name}-{len(rows)}/{precision}"
                stored, given = as_stored(client, rows, precision, name=key, rates=rates, **at)
                pairs = list(zip(text, stored, strict=True))
                same = sum(a["label"] == b["label"] for a, b in pairs)
                most = max(
                    abs(score - b["scores"][label])
                    for a, b in pairs
                    for label, score in a["scores"].items()
                )
                own = {rate: accepted(labels, gold) for rate, labels in given.items()}
                error, chance = calibration(stored, gold)
                kept.append(
                    (name, precision, *map(_of_rate, own.values()), shown(error), f"{chance:.1f}")
                )
                reached = [f(x, gold) for x in (text, stored) for f in (accuracy, macro_f1)]
                table.append(
                    (name, len(rows), precision, *map(shown, reached), same, f"{most:.1e}")
                )
                figures.append(
                    {"set": name, "rows": len(rows), "precision": str(precision)}
                    | {"text": [listed(x) for x in reached[:2]]}
                    | {"stored": [listed(x) for x in reached[2:]]}
                    | {"same": same, "difference": most, "accepted": own}
                    | {"ece": listed(error), "ece_by_chance": chance}
                )
    sheet.table(
        f"{options.head}: as text and as stored",
        (
            *("set", "texts", "precision", "text: accuracy", "macro-F1"),
            *("stored: accuracy", "macro-F1", "same label", "scores differ by"),
        ),
        table,
    )
    sheet.table(
        f"{options.head}: documents that are given a label, errors among them (at most), %",
        ("set", "precision", *(f"<= {100 * rate:g} %" for rate in rates), "ECE", "by chance"),
        kept,
    )
    page.finish({"head": options.head, "sets": figures})


def _of_rate(found: dict[str, float]) -> str:
    if not found["share"]:
        return "none"
    return f"{found['share']:.0f}: {found['wrong']:.1f} ({found['at most']:.1f})"


if __name__ == "__main__":
    main()
