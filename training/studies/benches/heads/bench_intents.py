"""Which texts get an intent, as shipped?

CLINC150's test questions, in scope and out of it, and the texts of the head's card that no intent
is meant by (lines of loghub, random strings, two random words) are classified by a running platform
(`verso up`), in slices of one kind. Nothing is chosen. Reported are the share that is given an
intent, in scope also the share that is given its own label, what `accept_error` 0.05 accepts, the
errors among it, and the slices that are said to have shifted. Brackets are 95 % bootstrap intervals
over the texts.

The limit is the processor, which encodes every text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sheet

from studies.benches.heads.asking import Flags, Replies, interval, listed, parser_of, shown
from studies.intents import outliers
from studies.quality import sets
from verso_client import Client
from verso_training.heads.rows import RowSplit

_BATCH = 100
_EACH = 200
_HEAD = "intents"
_NONE = "out_of_scope"
_RATE = 0.05


def kinds(data: Path, *, most: int) -> dict[str, list[tuple[str, str]]]:
    """Return the texts of each kind, at most so many, with their labels."""
    questions = sets.clinc(data).of(RowSplit.TEST)
    found = {
        "in scope": [(str(row.text), row.label) for row in questions if row.label != _NONE],
        "questions out of scope": [
            (str(row.text), row.label) for row in questions if row.label == _NONE
        ],
    }
    for kind, texts in outliers.strange(data, each=_EACH).items():
        found[kind] = [(text, _NONE) for text in texts]
    return {kind: rows[:most] for kind, rows in found.items()}


def asked(client: Client, texts: Sequence[str], *, kind: str, replies: Replies) -> list[list[Any]]:
    """Return of each text the label, whether it is accepted, and whether its slice has shifted."""

    def ask(start: int) -> list[list[Any]]:
        part = texts[start : start + _BATCH]
        plain = client.classify(_HEAD, texts=part)
        strict = client.classify(_HEAD, texts=part, accept_error=_RATE)
        return [
            [one.heads[0].label, not other.heads[0].abstained, bool(one.heads[0].shifted)]
            for one, other in zip(plain, strict, strict=True)
        ]

    starts = range(0, len(texts), _BATCH)
    found = replies.all(starts, name=lambda start: f"{kind}/{len(texts)}/{start}", ask=ask)
    return [one for own in found for one in own]


def share(flags: Flags) -> tuple[str, list[float]]:
    """Return a share in percent with its interval, for people and for machines."""
    found = interval(lambda rows: 100 * float(flags[rows].mean()), range(len(flags)))
    return shown(found), listed(found)


def main() -> None:
    """Run the bench."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="most texts of a kind")
    options = parser.parse_args()
    page = sheet.Sheet("intents")
    replies = Replies(options.replies)
    table, figures = [], []
    with Client(options.url, timeout_s=600.0) as client:
        for kind, rows in kinds(options.data, most=options.rows).items():
            said = asked(client, [text for text, _ in rows], kind=kind, replies=replies)
            labels = np.array([label for label, _, _ in said])
            right = labels == np.array([label for _, label in rows])
            kept = np.array([accepted for _, accepted, _ in said])
            shifted = np.array([moved for _, _, moved in said])
            reached = [share(labels != _NONE), share(right), share(kept)]
            wrong = share(~right[kept]) if kept.any() else ("none", [])
            moved = f"{100 * shifted.mean():.0f}"
            table.append((kind, len(rows), *(text for text, _ in (*reached, wrong)), moved))
            figures.append(
                {"kind": kind, "rows": len(rows), "given": reached[0][1], "right": reached[1][1]}
                | {"accepted": reached[2][1], "errors": wrong[1], "shifted": float(shifted.mean())}
            )
    sheet.table(
        f"{_HEAD}, as served, %",
        ("texts", "rows", "given an intent", "right", "accepted at 5 %", "errors", "shifted"),
        table,
    )
    page.finish({"head": _HEAD, "kinds": figures})


if __name__ == "__main__":
    main()
