"""Would typed slots or exemplars take fewer bytes than the codecs there are? On validation only.

Of the first 1,000 lines of a log system the first 800 are known, and lines among the next 200 are
measured; of CLINC150's and STS-B's training parts 800 texts are known and others measured. No test
part is opened. All sizes are ideal code lengths, without rounding up to bytes.

*Slots.* Every byte's cost is taken from the codec's own decisions. Where a value of a known type
stands (UUID, IPv4 address, time of day, date, seconds since 1970, hexadecimal, whole number), the
bytes' cost is replaced by the least bits its type allows: digits at log2(10), hexadecimal at 4
bits, an address at 32, a time at log2(86,400), a date at log2(366), and a number close to one
before it in the record at the bits of the difference. Nothing is charged for saying that a slot is
there, which type it has or how long it is: a real coder takes more, so this is the most that slots
can save. *slots or* is a coder that knows beforehand which of the two is shorter, value by value.

*Exemplars.* The known text most like the record (shared runs of four bytes) primes a codec as if it
stood before the record: the decoder as tokens before the record's, the n-gram model as text of the
same record. log2(known texts) bits are charged for its number. *of 3* takes the best of the three
most alike.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import record_sets
import sheet
import texts
from costs import Costs, byte_costs

from studies.papers.slots import slotted
from verso_codecs import mixture_fit, ngram, ranks
from verso_codecs.mixture import MixtureTables
from verso_codecs.ngram import NgramTables
from verso_codecs.ranks import RankTables
from verso_core import manifest
from verso_standalone.stack import find_artifact
from verso_training.artifact.graphs import DecoderGraph, EncoderGraph

KNOWN = 800
LAST = 1000
NEAREST = 3
_SEPARATOR = "\n"
_RUN = 4


@dataclass(frozen=True)
class Part:
    """One set's known texts and measured ones."""

    name: str
    known: list[bytes]
    measured: list[bytes]


def parts(data: Path, *, count: int, systems: Sequence[str]) -> Iterator[Part]:
    """Yield the sets, with about ``count`` measured texts each."""
    step = max(1, (LAST - KNOWN) // count)
    for system in systems:
        lines = [line.encode() for line in texts.loghub(system)(data) if line.strip()]
        yield Part(f"loghub: {system}", lines[:KNOWN], lines[KNOWN:LAST:step])
    for one in record_sets.record_sets(data, ["clinc150", "sts-b"]):
        yield Part(one.name, one.fit[:KNOWN], one.fit[KNOWN:LAST:step])


def nearest(text: bytes, known: Sequence[frozenset[bytes]], count: int) -> list[int]:
    """The known texts that share most runs of bytes with a text, by Jaccard's measure."""
    own = _runs(text)
    likeness = [len(own & other) / (len(own | other) or 1) for other in known]
    return sorted(range(len(known)), key=lambda row: -likeness[row])[:count]


def _runs(text: bytes) -> frozenset[bytes]:
    return frozenset(text[at : at + _RUN] for at in range(max(1, len(text) - _RUN + 1)))


class Decoder:
    """The artifact's decoder with texts before the record."""

    def __init__(self, folder: Path) -> None:
        codec = manifest.load(folder).manifest.codec
        self._margins = codec.epsilon, codec.confidence_epsilon
        self._graph = DecoderGraph(folder, codec, threads=1)
        self._encoder = EncoderGraph(folder)
        self._tables = RankTables.load(folder / "ranks.npz")
        self._most = codec.max_tokens - 1

    def bits(self, records: Sequence[str], primers: Sequence[str]) -> list[float]:
        """Bits of each record behind its primer, which is cut where there is no room for it."""
        vectors = self._encoder.encode(records).astype(np.float16).astype(np.float32)
        own = [self._graph.tokens(record) for record in records]
        before = [
            self._graph.tokens(primer + _SEPARATOR)[-max(1, self._most - len(ids)) :]
            if primer and len(ids) < self._most
            else []
            for primer, ids in zip(primers, own, strict=True)
        ]
        joined = [(first + ids)[: self._most] for first, ids in zip(before, own, strict=True)]
        found = [0.0] * len(records)
        for row, seen in self._graph.passes(joined, vectors):
            rows = slice(len(before[row]), None)
            events = ranks.events(
                seen.logits[rows],
                seen.confidence[rows],
                targets=seen.targets[rows],
                epsilon=self._margins[0],
            )
            found[row] = ranks.bits(events, self._tables, confidence_epsilon=self._margins[1])
        return found


def measure(part: Part, general: NgramTables, decoder: Decoder) -> dict[str, Any]:
    """Bytes a record, by way."""
    fitted = MixtureTables.fit(part.known, general)
    codecs: dict[str, Callable[[bytes], Costs]] = {
        "n-gram": lambda text: byte_costs(ngram.decisions(text, general)),
        "mixture": lambda text: byte_costs(mixture_fit.decisions(text, fitted.tables)),
    }
    count = len(part.measured)
    row: dict[str, Any] = {"set": part.name, "records": count}
    for name, costs_of in codecs.items():
        costs = [costs_of(text) for text in part.measured]
        bounds = [slotted(text, one) for text, one in zip(part.measured, costs, strict=True)]
        row[name] = sum(map(np.sum, costs)) / 8 / count
        row[f"{name}, slots"] = sum(always for always, _ in bounds) / 8 / count
        row[f"{name}, slots or"] = sum(either for _, either in bounds) / 8 / count
    return row | _primed(part, general, decoder)


def _primed(part: Part, general: NgramTables, decoder: Decoder) -> dict[str, float]:
    known = [_runs(text) for text in part.known]
    number = math.log2(len(part.known))
    chosen = [nearest(text, known, NEAREST) for text in part.measured]
    words = [text.decode("utf-8", "replace") for text in part.measured]
    found: dict[str, list[list[float]]] = {"n-gram": [], "neural": []}
    for rank in range(NEAREST):
        primers = [part.known[rows[rank]] for rows in chosen]
        spelt = [primer.decode("utf-8", "replace") for primer in primers]
        found["neural"].append([bits + number for bits in decoder.bits(words, spelt)])
        found["n-gram"].append(
            [
                number + _behind(primer + _SEPARATOR.encode(), text, general)
                for primer, text in zip(primers, part.measured, strict=True)
            ]
        )
    row = {"neural": float(np.mean(decoder.bits(words, [""] * len(words)))) / 8}
    for name, bits in found.items():
        row[f"{name}, exemplar"] = float(np.mean(bits[0])) / 8
        row[f"{name}, of 3"] = float(np.mean(np.min(bits, axis=0))) / 8
    return row


def _behind(primer: bytes, text: bytes, general: NgramTables) -> float:
    """Bits of a text behind a primer, by the n-gram model."""
    costs = byte_costs(ngram.decisions(primer + text, general))
    return float(costs[len(primer) :].sum())


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--artifact", type=Path, help="default: the stable one")
    parser.add_argument("--data", type=Path, required=True, help="folder of public data sets")
    parser.add_argument("--records", type=int, default=40, help="about so many of each set")
    parser.add_argument("--systems", nargs="*", default=texts.LOGHUB)
    arguments = parser.parse_args()
    paper = sheet.Sheet("alternatives")
    folder = arguments.artifact or find_artifact()
    general = NgramTables.load(folder / "ngram.npz")
    decoder = Decoder(folder)
    rows = [
        measure(part, general, decoder)
        for part in parts(arguments.data, count=arguments.records, systems=arguments.systems)
    ]
    columns = list(rows[0])
    sheet.table("bytes a record", columns, [[row[name] for name in columns] for row in rows])
    paper.finish({"artifact": folder.name, "sets": rows})


if __name__ == "__main__":
    main()
