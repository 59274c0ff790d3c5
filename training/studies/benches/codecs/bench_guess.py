"""How close is a guess from a vector alone, greedily and by beam search?

Nothing of this is needed to read a record: its patch says where the guess is wrong. It shows what
the vector and the decoder know by themselves. Short texts that were not trained on are encoded,
their vectors rounded to int8 as they are stored, and guessed with no patch. For each width of the
beam:

- *BLEU* (Papineni et al. 2002): BP * exp(1/4 sum_n log p_n), n = 1..4, over all texts of a set,
  words and marks as tokens, upper and lower case told apart;
- *right words*: share of a text's words that are in the guess, as often as they are there;
- *exact*: guesses that are the text, byte for byte;
- *loops*: guesses in which four words in a row, between white space, occur twice, and texts of the
  set of which that is true;
- *cosine*: mean cosine of a guess's own vector and the one given;
- *log p*: mean log-probability of a guess's tokens, which is what the beam looks for.

A second table is of all texts together, each counted once: the mean share of its words that are in
its guess, the mean cosine, and the rank correlation (Spearman) of that share with the cosine and
with log p: which of the two tells how good a guess is. Brackets in both are 95 % bootstrap
intervals over the texts.

The limit is the decoder's steps, one vector after another.

    bench_guess.py --data DIR --texts 100
    bench_guess.py --data DIR --corpus --texts 15
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import texts
from numpy.typing import NDArray

from studies.papers.bleu import right_words, with_ends, words
from studies.papers.kept import with_interval
from verso_core import manifest
from verso_core.jobs import Precision
from verso_standalone.stack import find_artifact
from verso_training.heads import signals
from verso_training.heads.scoring import spearman
from verso_training.heads.signals import Interval
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import cutter
from verso_worker.records.space import Space

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
_ROUNDS = 2000
SETS = ("clinc150: val", "sts-b: dev", "loghub: Spark", "loghub: HDFS")


@dataclass(frozen=True)
class Guessed:
    """How good each guess is, and what could tell it. Shape of all: (N,).

    Attributes:
        right: Share of the text's words that are in its guess, in percent.
        cosine: Of the guess's own vector and the one given.
        log_p: Mean log-probability of its tokens.
    """

    right: Floats
    cosine: Floats
    log_p: Floats

    @classmethod
    def joined(cls, parts: Sequence[Guessed]) -> Guessed:
        """Return the guesses of several sets."""
        return cls(
            *(
                np.concatenate(one)
                for one in zip(*((p.right, p.cosine, p.log_p) for p in parts), strict=True)
            )
        )

    def figures(self) -> dict[str, Interval]:
        """Return means and rank correlations, with intervals over the texts."""

        def of(figure: Callable[[Rows], float]) -> Interval:
            return signals.bootstrap(figure, len(self.right), rounds=_ROUNDS)

        return {
            "right words": of(lambda i: float(self.right[i].mean())),
            "cosine": of(lambda i: float(self.cosine[i].mean())),
            "right words and cosine": of(lambda i: spearman(self.right[i], self.cosine[i])),
            "right words and log p": of(lambda i: spearman(self.right[i], self.log_p[i])),
        }


def measure(
    service: Any, space: Space, records: Sequence[bytes], *, beam: int
) -> tuple[dict[str, Any], Guessed]:
    """Guess records with one width of the beam."""
    vectors = space.widen(space.round(service.encode(records).vectors))
    start = time.process_time()
    found = service.guess(vectors, beam=beam, max_tokens=10_000)
    spent_s = time.process_time() - start
    guesses, wanted = [words(one.text) for one in found], [words(one) for one in records]
    own = Guessed(
        np.array([right_words([a], [b]) for a, b in zip(guesses, wanted, strict=True)]),
        np.array([one.cosine for one in found]),
        np.array([one.log_probability for one in found]),
    )
    return {
        "beam": beam,
        **with_ends(guesses, wanted),
        "exact": sum(one.text == text for one, text in zip(found, records, strict=True)),
        "loops": sum(loops(one.text) for one in found),
        "loops_of_texts": sum(map(loops, records)),
        "cosine": float(own.cosine.mean()),
        "log_p": float(own.log_p.mean()),
        "cpu_ms": 1e3 * spent_s / len(records),
    }, own


def loops(text: bytes) -> bool:
    """Whether four words in a row occur twice in a text."""
    words = text.split()
    found = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    return len(set(found)) < len(found)


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public sets; default: the corpus")
    parser.add_argument("--corpus", action="store_true", help="the corpus beside the public sets")
    parser.add_argument("--texts", type=int, default=100, help="of each set")
    parser.add_argument("--beam", type=int, action="append", help="default: 1, 4 and 8")
    arguments = parser.parse_args()
    paper = sheet.Sheet("guess")
    artifact = manifest.load(arguments.artifact or find_artifact())
    described = artifact.manifest.space
    space = Space(Precision.INT8, described.dim, described.int8_scale)
    cuts = cutter(artifact)
    sets = {} if arguments.data is None else texts.public(arguments.data, only=SETS)
    if arguments.corpus or not sets:
        sets |= texts.corpus_by_kind()
    service = load_service(artifact, threads=1)
    rows = []
    every: dict[int, list[Guessed]] = {beam: [] for beam in arguments.beam or (1, 4, 8)}
    for name, given in sets.items():
        records = [cuts.cut(text)[0] for text in texts.chosen(given, arguments.texts)]
        for beam, kept in every.items():
            figures, own = measure(service, space, records, beam=beam)
            rows.append({"set": name, "texts": len(records)} | figures)
            kept.append(own)
    service.close()
    sheet.table("guesses", _COLUMNS, [list(_cells(row)) for row in rows])
    together = {beam: Guessed.joined(kept).figures() for beam, kept in every.items()}
    sheet.table(
        "all texts",
        ("beam", *next(iter(together.values()))),
        [(str(beam), *map(_shown, own.values())) for beam, own in together.items()],
    )
    listed = {
        str(beam): {name: [one.value, one.low, one.high] for name, one in own.items()}
        for beam, own in together.items()
    }
    paper.finish({"sets": rows, "all": listed})


_COLUMNS = (
    *("set", "texts", "beam", "bleu", "right words", "exact", "loops", "loops of texts"),
    *("cosine", "log p", "CPU ms a text"),
)


def _cells(row: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what stands in a line of the table, ends of intervals beside their figures."""
    for key, value in row.items():
        if key in ("bleu", "right"):
            yield with_interval(row, key)
        elif not key.endswith(("/low", "/high")):
            yield value


def _shown(found: Interval) -> str:
    return f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"


if __name__ == "__main__":
    main()
