"""How fast does the n-gram codec code and read with one thread, and what limits it?

Texts of the shipped corpus, cut to at most 1,000 bytes; with a data folder, lines of log systems
that its tables never saw; and one text again and again, whose lines of the table stay in the first
cache and whose branches are foreseen: the distance to it is what memory and guessing cost. *model*
is the prediction of every bit alone, *arithmetic* the coder alone. Processor seconds, so that other
work counts only by the caches it shares. The best of three rounds; every text is read back and
compared. The last column is a hash of all payloads: it stays the same when only the speed changes.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sheet
import texts

from verso_codecs import coder, ngram
from verso_codecs.ngram import NgramTables
from verso_standalone.stack import find_artifact

_SYSTEMS = ("HDFS", "OpenSSH", "Spark")
_LONGEST = 1000
_ROUNDS = 3


def measure(given: Sequence[bytes], tables: NgramTables) -> dict[str, Any]:
    """Code and read texts; megabytes a second of a processor."""
    raw = sum(map(len, given)) / 1e6
    ngram.decode(ngram.encode(given[0], tables), tables)  # compiles
    rounds = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        decided = [ngram.decisions(text, tables) for text in given]
        predicted = time.process_time()
        payloads = [coder.encode(*one) for one in decided]
        coded = time.process_time()
        read = [ngram.decode(payload, tables) for payload in payloads]
        done = time.process_time()
        if read != given:
            raise AssertionError("a text did not come back")
        rounds.append((predicted - began, coded - predicted, coded - began, done - coded))
    model, arithmetic, code, back = (raw / min(column) for column in zip(*rounds, strict=True))
    return {
        "texts": len(given),
        "model MB/s": model,
        "arithmetic MB/s": arithmetic,
        "code MB/s": code,
        "read MB/s": back,
        "payloads": hashlib.sha256(b"|".join(payloads)).hexdigest()[:12],
    }


def main() -> None:
    """Measure, print, hand in."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, help="folder of public data sets")
    parser.add_argument("--texts", type=int, default=400)
    arguments = parser.parse_args()
    paper = sheet.Sheet("ngram")
    tables = NgramTables.load((arguments.artifact or find_artifact()) / "ngram.npz")
    corpus = [text[:_LONGEST] for text in texts.chosen(texts.corpus(), arguments.texts)]
    sets = {"corpus": corpus}
    if arguments.data is not None:
        found = (list(texts.loghub(system)(arguments.data)) for system in _SYSTEMS)
        sets["log lines"] = [
            line.encode() for lines in found for line in lines[1000 : 1000 + arguments.texts]
        ]
    sets["one text"] = [min(corpus, key=len)] * 3 * arguments.texts
    rows = {name: measure(given, tables) for name, given in sets.items()}
    columns = list(rows["corpus"])
    sheet.table(
        "the n-gram codec, one thread",
        ["set", *columns],
        [[name, *row.values()] for name, row in rows.items()],
    )
    paper.finish({"sets": rows})


if __name__ == "__main__":
    main()
