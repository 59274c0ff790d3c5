"""What do labels that people have checked change of a head's confidence, as shipped?

The test texts of a log set, each once and in random order, are classified by a running platform
(`verso up`). Then the right labels of the first of them are sent (`POST /v1/feedback`), more and
more, and the others are classified again. Reported are the expected calibration error (ECE) of
those others before and after, its median by chance, and the gap: mean confidence minus the share of
right labels. Brackets are 95 % bootstrap intervals over the texts. The head of the platform keeps
what it was told: start from an empty one.

The limit is the processor, which encodes every chunk of a text.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import numpy as np
import sheet

from studies.benches.heads.asking import listed, parser_of, shown
from studies.benches.heads.bench_stored import texts
from studies.quality import sets
from verso_client import Client
from verso_training.heads import confidence, signals
from verso_training.heads.rows import Row
from verso_training.heads.signals import Interval

_BATCH = 32
_FRESH_S = 6.0
"""A worker reads what others were told again after five seconds."""
_ROUNDS = 2000


def said(client: Client, rows: Sequence[Row], head: str) -> list[tuple[str, float]]:
    """Return the label and the confidence of each text."""
    found = []
    for start in range(0, len(rows), _BATCH):
        part = [str(row.text) for row in rows[start : start + _BATCH]]
        for one in client.classify(head, texts=part):
            [own] = one.heads
            assert own.label is not None
            found.append((own.label, own.confidence))
    return found


def measured(
    found: Sequence[tuple[str, float]], gold: Sequence[str]
) -> tuple[Interval, float, Interval]:
    """Return the calibration error, its median by chance, and the gap, in percent."""
    sure = np.array([share for _, share in found], np.float32)
    right = np.array([label == own for (label, _), own in zip(found, gold, strict=True)])
    error = confidence.calibration_error(sure, right, rounds=_ROUNDS)
    gap = signals.bootstrap(
        lambda i: 100 * float((sure[i] - right[i]).mean()), len(right), rounds=_ROUNDS
    )
    percent = Interval(*(100 * x for x in (error.value, error.low, error.high)))
    return percent, 100 * confidence.by_chance(sure, rounds=_ROUNDS)[0], gap


def main() -> None:
    """Run the bench."""
    parser = parser_of(__doc__)
    parser.add_argument("--head", default="log-failures")
    parser.add_argument("--set", default="logs_defects4j")
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 100])
    parser.add_argument("--seed", type=int, default=0, help="of the order of the texts")
    options = parser.parse_args()
    page = sheet.Sheet("feedback")
    rows = texts(options.data, options.set, most=1000)
    random.Random(options.seed).shuffle(rows)
    gold = [f"{sets.LOG_FAMILIES[options.set]}/{row.label}" for row in rows]
    table, figures = [], []
    with Client(options.url, timeout_s=600.0) as client:
        before = said(client, rows, options.head)
        told = 0
        for labels in sorted(options.labels):
            taken = client.feedback(
                options.head,
                texts=[str(row.text) for row in rows[told:labels]],
                labels=gold[told:labels],
            )
            told += len(taken)
            time.sleep(_FRESH_S)
            others = said(client, rows[labels:], options.head)
            for name, found in (("before", before[labels:]), ("after", others)):
                error, chance, gap = measured(found, gold[labels:])
                table.append((labels, len(others), name, shown(error), f"{chance:.1f}", shown(gap)))
                figures.append(
                    {"labels": labels, "others": len(others), "which": name, "chance": chance}
                    | {"error": listed(error), "gap": listed(gap)}
                )
    sheet.table(
        f"{options.head} on {options.set}: labels that people have checked",
        ("labels", "other texts", "", "ECE", "by chance", "gap"),
        table,
    )
    page.finish({"head": options.head, "set": options.set, "seed": options.seed, "told": figures})


if __name__ == "__main__":
    main()
