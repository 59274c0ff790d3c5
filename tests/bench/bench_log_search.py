"""Does a search of logs find as much with one vector a statement as with one a line?

What limits the answer is which lines mining puts together, and how near a question is to a text
whose values are masked. On the samples of loghub (Zhu et al. 2023) every second line is indexed:

- *events*: a question is a whole line that is not indexed, at most five of each event that people
  have marked; the lines of that event are right. A statement stands for its lines, newest first.
  nDCG@10 and the mean average precision (MAP) of the list of lines.
- *questions*: those of ``log_questions.jsonl``, in plain language. Lines that match a question's
  pattern are right, and so is a statement of which at least half of the lines do. Share of
  questions with a right hit among the first ten, and the mean reciprocal rank (MRR).

Lines are compared unrounded, which is the best case for them, and statements in 4 bits a
dimension, as they are kept. *templates* encodes what mining finds, which has no headers and marks
for values; *rows* the first shape of a statement, with its header and without marks. *raw*
questions are encoded as they come; *alike* are those that begin with a header, as lines do, and are
then encoded as the statements are. *hybrid* adds the words.

Parameters were chosen on every other system, Android first, and never on the others: the means of
both halves are given apart. Without a data folder the questions about the lines of the shipped
corpus are asked, which choose nothing.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import lzma
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sheet
import texts
from numpy.typing import NDArray
from rival_server import load_encoder

from verso_codecs.logs import parsing
from verso_codecs.logs.headers import message
from verso_codecs.logs.shapes import Shapes, masked
from verso_core.jobs import Precision
from verso_core.jobs.search import DENSE_SHARE
from verso_standalone import sample
from verso_standalone.stack import find_artifact
from verso_worker.records.space import Space, Vector
from verso_worker.rules.grouping.templates import SIMILAR, WORDS, Miner
from verso_worker.stores.bm25 import Bm25

QUESTIONS = Path(__file__).parent / "log_questions.jsonl"
SHIPPED = "shipped"
HITS = 10
ASKED_PER_EVENT = 5
CHOSEN = 0.8, 16
"""Similarity and words that the first half of the systems chose."""

_MARKS = re.compile(rb"(?:<\*>|<time>)(?:[.:,/_-]?(?:<\*>|<time>))*")

Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]
Groups = list[NDArray[np.int64]]
"""The lines of each hit, newest first."""
Measures = dict[str, list[float]]
"""One number for each text that was asked."""

_OVER_SYSTEMS = ("vectors", "ndcg", "map")
_OVER_ALL = ("top10", "mrr")


@dataclass(frozen=True)
class Asked:
    """What is searched for, and which of the indexed lines are right. Shape: (lines,)."""

    text: bytes
    right: Mask


@dataclass(frozen=True)
class System:
    """The indexed lines of one system, and what is asked about them."""

    name: str
    lines: list[bytes]
    events: list[Asked]
    questions: list[Asked]


@dataclass(frozen=True)
class Variant:
    """A way to index and to ask.

    Attributes:
        miner: similarity and words of the mining of templates; None for a vector a line.
        rows: whether the first shape of a statement is encoded, not its template.
        alike: whether a question that begins with a header is encoded as statements are.
        hybrid: whether words count.
    """

    name: str
    miner: tuple[float, int] | None = None
    rows: bool = False
    alike: bool = False
    hybrid: bool = False


class Encoding:
    """The default artifact's encoder; vectors are kept by a hash of the text.

    Args:
        kept: file that vectors are read from and written to, or None.
    """

    def __init__(self, kept: Path | None) -> None:
        artifact = find_artifact()
        self._encoder = load_encoder(artifact, threads=1)
        self._kept = kept
        self._known: dict[bytes, Vector] = {}
        if kept is not None and kept.exists():
            with np.load(kept) as data:
                keys = [key.tobytes() for key in data["keys"]]
                self._known = dict(zip(keys, data["vectors"], strict=True))

    def vectors(self, given: Sequence[bytes]) -> Vector:
        """Return unit vectors. Shape: (texts, dim)."""
        new = sorted({text for text in given if _key(text) not in self._known}, key=len)
        for start in range(0, len(new), 32):
            part = new[start : start + 32]
            found = self._encoder.run(self._encoder.tokenise(part))
            self._known |= {_key(text): row for text, row in zip(part, found, strict=True)}
        return np.stack([self._known[_key(text)] for text in given])

    def keep(self) -> None:
        """Write the vectors to the file, if there is one."""
        if self._kept is not None:
            keys = np.stack([np.frombuffer(key, np.uint8) for key in self._known])
            np.savez(self._kept, keys=keys, vectors=np.stack(list(self._known.values())))


def _rank(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()


def _key(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


class Words:
    """The words of texts, weighted as the worker weighs those of statements (BM25)."""

    def __init__(self, given: Sequence[bytes]) -> None:
        self._bm25 = Bm25()
        self._count = len(given)
        self._holders: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for number, terms in enumerate(self._bm25.documents(given)):
            for one, weight in zip(terms.ids, terms.weights, strict=True):
                self._holders[one].append((number, weight))

    def scores(self, question: bytes) -> Scores:
        """Return the weight of each text. Shape: (texts,)."""
        found = np.zeros(self._count)
        terms = self._bm25.query(question)
        for one, wanted in zip(terms.ids, terms.weights, strict=True):
            holders = self._holders.get(one, [])
            rare = np.log(1 + (self._count - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, weight in holders:
                found[number] += wanted * weight * rare
        return found


class Index:
    """The lines of a system, by themselves or by the statements that wrote them."""

    def __init__(self, system: System, variant: Variant, encoding: Encoding) -> None:
        self._variant = variant
        self._encoding = encoding
        self.groups: Groups
        if variant.miner is None:
            own = system.lines
            self.groups = [np.array([number]) for number in range(len(own))]
            self._vectors = encoding.vectors(own)
        else:
            own = self._mine(system.lines, *variant.miner)
            vectors = encoding.vectors(own)
            space = Space(Precision.INT4, vectors.shape[1], 1.0)
            self._vectors = space.widen(space.round(vectors))
        self._words = Words(own) if variant.hybrid else None

    def order(self, question: bytes) -> NDArray[np.int64]:
        """Return the numbers of all hits, the best first."""
        whole: int | None = None
        if self._variant.miner is not None:
            row, shape = self._parsed(question)
            whole = self._statements[shape] if shape >= 0 else None
            if self._variant.alike and message(masked(row)) != masked(row):
                question = (
                    without_marks(masked(row)) if self._variant.rows else message(masked(row))
                )
        cosines = (self._vectors @ self._encoding.vectors([question])[0]).astype(np.float64)
        weights = None if self._words is None else self._words.scores(question)
        if whole is not None:
            cosines[whole] = max(1.0, float(cosines[whole]))
            if weights is not None:
                weights[whole] = max(1.0, float(weights.max()))
        return np.argsort(-_fused(cosines, weights), kind="stable")

    def _mine(self, lines: Sequence[bytes], similar: float, words: int) -> list[bytes]:
        """Find the statements of lines as a log collection does; return their templates."""
        self._shapes = Shapes()
        parsed = parsing.parse(
            parsing.split(b"".join(line + b"\n" for line in lines)), self._shapes
        )
        self._shapes.extend(parsed.new_rows)
        parsed.number(range(len(self._shapes)))
        miner = Miner(similar=similar, words=words)
        mined = [
            miner.add(message(masked(self._shapes.row(number))).decode("utf-8", "replace"))
            for number in range(len(self._shapes))
        ]
        templates = miner.templates()
        numbers: dict[str, int] = {}
        self._statements = [numbers.setdefault(templates[one], len(numbers)) for one in mined]
        of_line = np.array(self._statements)[parsed.shapes]
        self.groups = [np.flatnonzero(of_line == one)[::-1] for one in range(len(numbers))]
        if self._variant.rows:
            firsts = [self._statements.index(one) for one in range(len(numbers))]
            return [without_marks(masked(self._shapes.row(first))) for first in firsts]
        return [text.encode() for text in numbers]

    def _parsed(self, question: bytes) -> tuple[bytes, int]:
        """Return the row of a question's shape, and the shape's number or one below 0."""
        parsed = parsing.parse(parsing.split(question.split(b"\n", 1)[0] + b"\n"), self._shapes)
        shape = int(parsed.shapes[0])
        return (self._shapes.row(shape) if shape >= 0 else parsed.new_rows[-1 - shape]), shape


def without_marks(text: bytes) -> bytes:
    """Return a masked line without what stands for its values."""
    return b" ".join(_MARKS.sub(b" ", text).split()) or text


def _fused(cosines: Scores, weights: Scores | None) -> Scores:
    """Join the scores of all hits; see :mod:`verso_worker.records.fusion`."""
    if weights is None or not weights.any():
        return cosines
    near = cosines - cosines.min()
    joined: Scores = DENSE_SHARE * near / (near.max() or 1.0)
    joined += (1 - DENSE_SHARE) * weights / weights.max()
    return joined


def of_lines(order: NDArray[np.int64], groups: Groups, right: Mask) -> tuple[float, float]:
    """Return nDCG@10 and the average precision of the lines of hits, in their order."""
    found = right[np.concatenate([groups[hit] for hit in order])]
    gains = 1 / np.log2(np.arange(2, HITS + 2))
    ideal = gains[: int(found.sum())].sum()
    precision = np.cumsum(found) / np.arange(1, len(found) + 1)
    return float((found[:HITS] * gains).sum() / ideal), float(precision[found].mean())


def of_hits(order: NDArray[np.int64], groups: Groups, right: Mask) -> tuple[float, float]:
    """Return whether one of the first ten hits is right, and the reciprocal rank of the first."""
    ranks = [rank for rank, hit in enumerate(order[:HITS], 1) if right[groups[hit]].mean() >= 0.5]
    return (1.0, 1 / ranks[0]) if ranks else (0.0, 0.0)


def measured(system: System, variant: Variant, encoding: Encoding) -> Measures:
    """Return the measures of a system: each a list of one number an asked text."""
    index = Index(system, variant, encoding)
    events = [of_lines(index.order(one.text), index.groups, one.right) for one in system.events]
    asked = [of_hits(index.order(one.text), index.groups, one.right) for one in system.questions]
    return {
        "ndcg": [one for one, _ in events],
        "map": [one for _, one in events],
        "top10": [one for one, _ in asked],
        "mrr": [one for _, one in asked],
        "vectors": [float(len(index.groups))],
    }


def loghub(folder: Path) -> Iterator[System]:
    """Yield the systems of a data folder."""
    for name in sorted(texts.LOGHUB):
        home = folder / "logs_loghub2k" / name
        lines = [line.encode() for line in texts.loghub(name)(folder)]
        labels = _labels(home / f"{name}_2k.log_structured")
        indexed, marked = lines[::2], labels[::2]
        others: dict[str, set[bytes]] = defaultdict(set)
        for line, label in zip(lines[1::2], labels[1::2], strict=True):
            others[label].add(line)
        events = [
            Asked(line, np.array([one == label for one in marked]))
            for label in sorted(set(marked) & set(others))
            for line in sorted(others[label], key=_rank)[:ASKED_PER_EVENT]
        ]
        yield System(name, indexed, events, questions(name, indexed))


def _labels(stem: Path) -> list[str]:
    """Read the events of a system's lines, corrected ones where they are published."""
    corrected = stem.with_name(stem.name + "_corrected.csv.xz")
    path = corrected if corrected.exists() else stem.with_name(stem.name + ".csv.xz")
    with lzma.open(path, "rt", encoding="utf-8", newline="") as stream:
        return [row["EventId"] for row in csv.DictReader(stream)]


def shipped() -> System:
    """Return the lines of the shipped corpus, which have no events."""
    found = [one for one in sample.documents() if (one.metadata or {}).get("kind") == "line"]
    lines = [one.text if isinstance(one.text, bytes) else one.text.encode() for one in found]
    lines = [line for line in lines if b"\n" not in line]
    return System(SHIPPED, lines, [], questions(SHIPPED, lines))


def questions(system: str, lines: Sequence[bytes]) -> list[Asked]:
    """Read the questions about a system."""
    _, *rows = map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines())
    decoded = [line.decode("utf-8", "replace") for line in lines]
    found = []
    for row in rows:
        if row["system"] == system:
            right = np.array([re.search(row["lines"], line) is not None for line in decoded])
            if not right.any():
                raise ValueError(f"expected lines that answer {row['question']!r}, got none")
            found.append(Asked(row["question"].encode(), right))
    return found


def means(by_system: dict[str, Measures], systems: Sequence[str]) -> dict[str, float | None]:
    """Return a variant's means: of events over systems, of questions over all of them."""
    rows = [by_system[name] for name in systems]
    found = {key: _mean([_mean(row[key]) for row in rows if row[key]]) for key in _OVER_SYSTEMS}
    return found | {key: _mean([one for row in rows for one in row[key]]) for key in _OVER_ALL}


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [one for one in numbers if one is not None]
    return float(np.mean(known)) if known else None


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of public sets")
    parser.add_argument("--similar", type=float, default=CHOSEN[0])
    parser.add_argument("--words", type=int, default=CHOSEN[1])
    parser.add_argument("--vectors", type=Path, help="file (.npz) that keeps vectors between runs")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help="names of rows, not all")
    arguments = parser.parse_args()
    paper = sheet.Sheet("log_search")
    systems = [shipped()] if arguments.data is None else list(loghub(arguments.data))
    encoding = Encoding(arguments.vectors)
    chosen = (arguments.similar, arguments.words)
    variants = [
        Variant("lines"),
        Variant("lines, hybrid", hybrid=True),
        Variant("the miner's own parameters, raw", (SIMILAR, WORDS)),
        Variant("the miner's own parameters, hybrid", (SIMILAR, WORDS), hybrid=True),
        Variant("mined as chosen: templates, raw", chosen),
        Variant("as shipped: mined as chosen, alike", chosen, alike=True),
        Variant("as shipped, hybrid", chosen, alike=True, hybrid=True),
        Variant("chosen: rows, alike", chosen, rows=True, alike=True),
        Variant("chosen, hybrid", chosen, rows=True, alike=True, hybrid=True),
    ]
    if unknown := {*(arguments.only or ())} - {variant.name for variant in variants}:
        parser.error(f"expected names of rows, got {sorted(unknown)}")
    variants = [one for one in variants if not arguments.only or one.name in arguments.only]
    results: dict[str, dict[str, Measures]] = defaultdict(dict)
    for system in systems:
        for variant in variants:
            results[variant.name][system.name] = measured(system, variant, encoding)
        encoding.keep()
    names = [system.name for system in systems]
    halves = {"all": names}
    if arguments.data is not None:
        halves |= {"chosen on": names[::2], "only reported": names[1::2]}
    found = {
        half: {name: means(row, part) for name, row in results.items()}
        for half, part in halves.items()
    }
    for half, part in halves.items():
        rows = [[name, *row.values()] for name, row in found[half].items()]
        sheet.table(f"{half}: {', '.join(part)}", ["", *_OVER_SYSTEMS, *_OVER_ALL], _shown(rows))
    paper.finish(
        {
            "similar": chosen[0],
            "words": chosen[1],
            "halves": halves,
            "lines": sum(len(system.lines) for system in systems),
            "events asked": sum(len(system.events) for system in systems),
            "questions": sum(len(system.questions) for system in systems),
            "means": found,
            "systems": {
                name: {variant: means(results[variant], [name]) for variant in results}
                for name in names
            },
        }
    )


def _shown(rows: Sequence[Sequence[str | float | None]]) -> list[list[str]]:
    return [[one if isinstance(one, str) else _cell(one) for one in row] for row in rows]


def _cell(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:.3f}" if number <= 1 else f"{number:,.0f}"


if __name__ == "__main__":
    main()
