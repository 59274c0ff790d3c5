"""How close is a guess from a vector alone, greedily and by beam search?

Nothing of this is needed to read a record: its patch says where the guess is wrong. It shows what
the vector and the decoder know by themselves. Short texts that were not trained on are encoded,
their vectors rounded to int8 as they are stored, and guessed with no patch. For each width of the
beam:

- *BLEU* (Papineni et al. 2002): BP * exp(1/4 sum_n log p_n), n = 1..4, over all texts of a set,
  words and marks as tokens, upper and lower case told apart;
- *right words*: share of a text's words that are in the guess, as often as they are there;
- *exact*: guesses that are the text, byte for byte;
- *log p*: mean log-probability of a guess's tokens, which is what the beam looks for.

The limit is the decoder's steps, one vector after another.

    bench_guess.py --data DIR --texts 100
"""

from __future__ import annotations

import argparse
import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import texts

from verso_core import manifest
from verso_core.jobs import Precision
from verso_standalone.stack import find_artifact
from verso_worker.engine.loading import load_service
from verso_worker.records.artifact import cutter
from verso_worker.records.space import Space

_TOKEN = re.compile(r"\w+|[^\w\s]")
_LONGEST = 4
SETS = ("clinc150: val", "sts-b: dev", "loghub: Spark", "loghub: HDFS")


def words(text: bytes) -> list[str]:
    """Split a text into words and marks."""
    return _TOKEN.findall(text.decode("utf-8", "replace"))


def bleu(guesses: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """Return the BLEU of a set, one reference each, in [0, 100]; 0 where an n-gram order has no
    hit.

    Papineni et al. 2002: counts are clipped to the reference's and added up over the set; the
    brevity penalty is exp(1 - r/c) where the guesses are shorter in all.
    """
    hits, grams = [0] * _LONGEST, [0] * _LONGEST
    for guess, text in zip(guesses, wanted, strict=True):
        for order in range(1, _LONGEST + 1):
            found, there = _grams(guess, order), _grams(text, order)
            hits[order - 1] += sum((found & there).values())
            grams[order - 1] += sum(found.values())
    if not all(hits):
        return 0.0
    mean = sum(math.log(h / g) for h, g in zip(hits, grams, strict=True)) / _LONGEST
    length, reference = sum(map(len, guesses)), sum(map(len, wanted))
    return 100 * min(1.0, math.exp(1 - reference / length)) * math.exp(mean)


def _grams(tokens: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[at : at + order]) for at in range(len(tokens) - order + 1))


def measure(service: Any, space: Space, records: Sequence[bytes], *, beam: int) -> dict[str, Any]:
    """Guess records with one width of the beam."""
    vectors = space.widen(space.round(service.encode(records).vectors))
    start = time.process_time()
    found = service.guess(vectors, beam=beam, max_tokens=10_000)
    spent_s = time.process_time() - start
    guesses, wanted = [words(one.text) for one in found], [words(one) for one in records]
    right = sum(
        sum((Counter(a) & Counter(b)).values()) for a, b in zip(guesses, wanted, strict=True)
    )
    return {
        "beam": beam,
        "bleu": bleu(guesses, wanted),
        "right_words": 100 * right / sum(map(len, wanted)),
        "exact": sum(one.text == text for one, text in zip(found, records, strict=True)),
        "log_p": float(np.mean([one.log_probability for one in found])),
        "cpu_ms": 1e3 * spent_s / len(records),
    }


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
        public = texts.public(arguments.data)
        sets = {name: public[name] for name in SETS if name in public}
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
