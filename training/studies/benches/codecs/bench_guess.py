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

The limit is the decoder's steps, one vector after another.

    bench_guess.py --data DIR --texts 100
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import texts

from studies.papers.bleu import bleu, right_words, words
from verso_core import manifest
from verso_core.jobs import Precision
from verso_standalone.stack import find_artifact
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import cutter
from verso_worker.records.space import Space

SETS = ("clinc150: val", "sts-b: dev", "loghub: Spark", "loghub: HDFS")


def measure(service: Any, space: Space, records: Sequence[bytes], *, beam: int) -> dict[str, Any]:
    """Guess records with one width of the beam."""
    vectors = space.widen(space.round(service.encode(records).vectors))
    start = time.process_time()
    found = service.guess(vectors, beam=beam, max_tokens=10_000)
    spent_s = time.process_time() - start
    guesses, wanted = [words(one.text) for one in found], [words(one) for one in records]
    return {
        "beam": beam,
        "bleu": bleu(guesses, wanted),
        "right_words": right_words(guesses, wanted),
        "exact": sum(one.text == text for one, text in zip(found, records, strict=True)),
        "loops": sum(loops(one.text) for one in found),
        "loops_of_texts": sum(map(loops, records)),
        "cosine": float(np.mean([one.cosine for one in found])),
        "log_p": float(np.mean([one.log_probability for one in found])),
        "cpu_ms": 1e3 * spent_s / len(records),
    }


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
    parser.add_argument("--texts", type=int, default=100, help="of each set")
    parser.add_argument("--beam", type=int, action="append", help="default: 1, 4 and 8")
    arguments = parser.parse_args()
    paper = sheet.Sheet("guess")
    artifact = manifest.load(arguments.artifact or find_artifact())
    described = artifact.manifest.space
    space = Space(Precision.INT8, described.dim, described.int8_scale)
    cuts = cutter(artifact)
    sets = texts.corpus_by_kind()
    if arguments.data is not None:
        sets = texts.public(arguments.data, only=SETS)
    service = load_service(artifact, threads=1)
    rows = []
    for name, given in sets.items():
        records = [cuts.cut(text)[0] for text in texts.chosen(given, arguments.texts)]
        found = [
            measure(service, space, records, beam=beam) for beam in arguments.beam or (1, 4, 8)
        ]
        rows += [{"set": name, "texts": len(records)} | one for one in found]
    service.close()
    sheet.table("guesses", list(rows[0]), [list(row.values()) for row in rows])
    paper.finish({"sets": rows})


if __name__ == "__main__":
    main()
