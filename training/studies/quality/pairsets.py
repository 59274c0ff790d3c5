"""Pairs of texts with scores: questions with sentences, premises with hypotheses, STS.

Only SelQA (Apache-2.0), SQuAD and SNLI (CC BY-SA 4.0) may be trained on for a head that ships. The
texts of STS-B keep terms of their own, so it serves figures only.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from studies.quality import squad
from studies.quality.squad import Part
from verso_training.heads.scoring import Pair

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_T = TypeVar("_T")
_SNLI_SCORES = {"0": 1.0, "1": 0.5, "2": 0.0}


@dataclass(frozen=True)
class Ranking:
    """A question with candidate sentences, and which of them answer it."""

    question: str
    candidates: tuple[str, ...]
    right: frozenset[int]


def stsb(root: Path, part: str) -> list[Pair]:
    """STS-B: ``train``, ``dev`` or ``test``; scores 0 to 5 become 0 to 1."""
    path = root / "sim_stsb" / f"stsb-en-{part}.csv"
    if part == "train":
        text = lzma.decompress(Path(f"{path}.xz").read_bytes()).decode("utf-8")
    else:
        text = path.read_text(encoding="utf-8")
    rows = csv.reader(io.StringIO(text, newline=""))
    return [Pair(a, b, float(score) / 5.0) for a, b, score in rows]


def selqa(root: Path, part: str) -> list[Ranking]:
    """SelQA: ``dev`` or ``test``."""
    with lzma.open(root / "qa_selqa" / f"{part}.jsonl.xz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return [
        Ranking(row["question"], tuple(row["candidates"]), frozenset(row["answers"]))
        for row in rows
        if row["answers"]
    ]


def squad_sentences(root: Path, part: Part) -> Iterator[Ranking]:
    """SQuAD questions with the sentences of their paragraph; with an answer in it one is right."""
    for row in squad.read(root, part):
        sentences = tuple(_SENTENCE.split(row.context))
        right = frozenset(
            i for i, s in enumerate(sentences) if any(answer in s for answer in row.answers)
        )
        if right and len(right) < len(sentences):
            yield Ranking(row.question, sentences, right)


def snli(root: Path, part: str) -> list[Pair]:
    """SNLI: ``validation`` or ``test``; entailment 1, neutral 0.5, contradiction 0."""
    with lzma.open(root / "nli_snli" / f"{part}.tsv.xz", "rt", encoding="utf-8") as stream:
        next(stream)
        rows = [line.rstrip("\n").split("\t") for line in stream]
    return [Pair(a, b, _SNLI_SCORES[label]) for a, b, label in rows if label in _SNLI_SCORES]


def shippable(root: Path, *, seed: int = 0) -> list[Pair]:
    """The training pairs of the ``pairs`` head: relevance first, meaning second.

    Each question gives one right sentence and two wrong ones of the same text, which is harder to
    tell than a sentence drawn from anywhere.
    """
    rng = random.Random(seed)
    rankings = [
        *selqa(root, "test"),
        *_some(list(squad_sentences(root, Part.TRAIN)), 2500, rng),
    ]
    pairs = []
    for row in rankings:
        pairs.append(Pair(row.question, row.candidates[rng.choice(sorted(row.right))], 1.0))
        wrong = [i for i in range(len(row.candidates)) if i not in row.right]
        pairs += [Pair(row.question, row.candidates[i], 0.0) for i in _some(wrong, 2, rng)]
    return [*pairs, *_some(snli(root, "validation"), 5000, rng)]


def _some(rows: Sequence[_T], count: int, rng: random.Random) -> list[_T]:
    return rng.sample(list(rows), min(count, len(rows)))
