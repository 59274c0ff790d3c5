"""How well do the heads that score pairs tell likeness, as shipped?

Pairs are sent to a running platform (`verso up`), to `POST /v1/score`. STS-B's test part: rank and
linear correlation with people's scores; nothing is chosen. Quora's question pairs, a tenth of those
at hand, split so that no question is in two parts: the threshold from which on two questions are
duplicates is chosen on the validation part, accuracy and F1 are reported on the test part. Neither
head was trained on either set. Brackets are 95 % bootstrap intervals over the pairs. *Other way
round* is by how much scores change where the texts of a pair change places.

The limit is the processor, which reads each pair, or encodes each text.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import sheet

from studies.benches.heads.asking import (
    Flags,
    Floats,
    Replies,
    Rows,
    best_cut,
    interval,
    listed,
    parser_of,
    shown,
)
from studies.quality import pairsets
from studies.tasks import sets
from verso_client import Client
from verso_training.heads.rows import RowSplit
from verso_training.heads.scoring import Pair, spearman

_BATCH = 128
_TURNED = 512
_FIGURES = ("STS-B, Spearman", "STS-B, Pearson", "Quora, accuracy", "Quora, F1")


def scored(client: Client, pairs: list[Pair], *, head: str, name: str, replies: Replies) -> Floats:
    """Return a head's score of each pair."""
    starts = range(0, len(pairs), _BATCH)

    def ask(start: int) -> list[float]:
        return client.score([(one.a, one.b) for one in pairs[start : start + _BATCH]], head=head)

    found = replies.all(starts, name=lambda start: f"{head}/{name}/{start}", ask=ask)
    return np.concatenate([np.array(one, np.float64) for one in found])


def _spearman(said: Floats, gold: Floats, rows: Rows) -> float:
    return 100 * spearman(said[rows], gold[rows])


def _pearson(said: Floats, gold: Floats, rows: Rows) -> float:
    return 100 * float(np.corrcoef(said[rows], gold[rows])[0, 1])


def _accuracy(yes: Flags, truth: Flags, rows: Rows) -> float:
    return 100 * float((yes == truth)[rows].mean())


def _mean(values: Floats, rows: Rows) -> float:
    return float(values[rows].mean())


def _f1(yes: Flags, truth: Flags, rows: Rows) -> float:
    """Return the F1 of "duplicate"."""
    both = (yes & truth)[rows].sum()
    return 200 * float(both) / float(yes[rows].sum() + truth[rows].sum())


def main() -> None:
    """Run the bench."""
    parser = parser_of(__doc__)
    parser.add_argument("--head", action="append", help="default: alike and pairs")
    options = parser.parse_args()
    page = sheet.Sheet("pairs")
    replies = Replies(options.replies)
    likeness = pairsets.stsb(options.data, "test")
    duplicates = sets.duplicates(options.data)
    gold = np.array([pair.score for pair in likeness])
    parts = {part: duplicates[part] for part in (RowSplit.VALIDATION, RowSplit.TEST)}
    truth = {part: np.array([p.score > 0.5 for p in rows]) for part, rows in parts.items()}
    test = truth[RowSplit.TEST]
    table = []
    figures: dict[str, dict[str, Any]] = {}
    with Client(options.url, timeout_s=600.0) as client:
        for head in options.head or ["alike", "pairs"]:
            said = scored(client, likeness, head=head, name="stsb", replies=replies)
            turned = [Pair(one.b, one.a, one.score) for one in likeness[:_TURNED]]
            other = scored(client, turned, head=head, name="stsb-turned", replies=replies)
            asked = {
                part: scored(client, rows, head=head, name=f"quora-{part}", replies=replies)
                for part, rows in parts.items()
            }
            cut = best_cut(asked[RowSplit.VALIDATION], truth[RowSplit.VALIDATION])
            yes = asked[RowSplit.TEST] >= cut
            measures = (
                *(partial(_spearman, said, gold), partial(_pearson, said, gold)),
                *(partial(_accuracy, yes, test), partial(_f1, yes, test)),
            )
            own = {
                name: interval(measure, range(len(gold if name.startswith("STS") else test)))
                for name, measure in zip(_FIGURES, measures, strict=True)
            }
            moved = np.abs(other - said[:_TURNED])
            turn = interval(partial(_mean, moved), range(len(moved)))
            told = f"{turn.value:.3f} [{turn.low:.3f}, {turn.high:.3f}]"
            table.append((head, *map(shown, own.values()), f"{cut:.3f}", told))
            figures[head] = {
                "threshold": cut,
                "other way round": listed(turn),
                **{name: listed(one) for name, one in own.items()},
            }
    sheet.table(
        f"STS-B test, {len(gold)} pairs; Quora, {len(test)} test pairs, "
        f"{100 * test.mean():.1f} % of them duplicates",
        ("head", *_FIGURES, "threshold", "other way round"),
        table,
    )
    page.finish({"rows": {"stsb": len(gold), "quora": len(test)}, "heads": figures})


if __name__ == "__main__":
    main()
