"""The hits of a platform for a set's questions, with the texts of the first records.

It is written to a file, so that heads can be trained and measured on it without the platform.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.benches.rerank import reranking
from studies.benches.rerank.reranking import HITS, Read
from studies.quality import passages
from verso_client import Client
from verso_client.cli import evaluation as retrieval
from verso_core.jobs.search import Hit
from verso_training.heads.ranking.groups import Group
from verso_training.heads.scoring import Pair

Scores = Callable[[Sequence[Pair]], NDArray[np.float32]]


@dataclass(frozen=True)
class Searched:
    """A set's questions, and what was found.

    Attributes:
        hits: Of each question.
        right: The best record of a judged document, of each question that has one found.
        scored: Hits that have their text, and that heads read.
    """

    given: retrieval.Set
    hits: Mapping[str, list[Hit]]
    right: Mapping[str, str]
    scored: int

    def only(self, names: Sequence[str]) -> Searched:
        """Return the same for some questions."""
        questions = {name: self.given.questions[name] for name in names}
        return dataclasses.replace(self, given=dataclasses.replace(self.given, questions=questions))

    @property
    def judged(self) -> set[str]:
        """The documents that answer one of the questions."""
        return {one for name in self.given.questions for one in self.given.relevant[name]}

    def texts(self) -> list[str]:
        """Return every text once: questions, and the records that are read or learnt from."""
        names = self.given.questions
        records = (hit.text or "" for name in names for hit in self.hits[name][: self.scored])
        rights = (self.right[name] for name in names if name in self.right)
        return list(dict.fromkeys([*names.values(), *records, *rights]))

    def groups(self, *, wrong: int) -> list[Group]:
        """Return questions to learn from; half of the wrong records are among the first."""
        rng, made = random.Random(0), []
        for name, question in self.given.questions.items():
            judged = self.given.relevant[name]
            others = [hit.text or "" for hit in self._first(name) if hit.document not in judged]
            if name in self.right:
                drawn = passages.drawn(others, wrong=wrong, rng=rng)
                made.append(Group(question, self.right[name], drawn))
        return made

    def read(self, scores: Scores, *, kept: Path) -> list[Read]:
        """Score the first records of every question, or read an earlier run's scores."""
        names = list(self.given.questions)
        if not kept.exists():
            flat = [
                Pair(self.given.questions[name], hit.text or "", 0.0)
                for name in names
                for hit in self._first(name)
            ]
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.save(kept, scores(flat))
        cuts = np.cumsum([len(self._first(name)) for name in names])[:-1]
        parts = np.split(np.load(kept), cuts)
        return [Read(self.hits[name], part) for name, part in zip(names, parts, strict=True)]

    def perfect(self) -> float:
        """Return the nDCG@10 of an order in which the judged among the first records lead, in %."""
        reached = []
        for name in self.given.questions:
            grades, rest = self.given.relevant[name], self.hits[name][self.scored :]
            first = sorted(self._first(name), key=lambda hit: -grades.get(hit.document, 0))
            order = list(dict.fromkeys(hit.document for hit in [*first, *rest]))
            reached.append(retrieval.ndcg(order, grades))
        return reranking.percent(reached)

    def _first(self, name: str) -> list[Hit]:
        return self.hits[name][: self.scored]


def searched(
    client: Client, folder: Path, *, split: str, collection: str | None, scored: int, work: Path
) -> Searched:
    """Search for every question of a split, or read what an earlier run found."""
    given = retrieval.read(folder, split=split)
    kept = work / f"{given.name}-{split}-{scored}.json"
    if not kept.exists():
        with reranking.taken_in(client, given, collection=collection) as name:
            found = {
                key: _found(client, question, given.relevant[key], collection=name, scored=scored)
                for key, question in given.questions.items()
            }
        kept.write_text(json.dumps(found))
    rows = json.loads(kept.read_text())
    hits = {key: [Hit.model_validate(one) for one in row["hits"]] for key, row in rows.items()}
    right = {key: row["right"] for key, row in rows.items() if row["right"]}
    return Searched(given, hits, right, scored)


def _found(
    client: Client, question: str, judged: Mapping[str, int], *, collection: str, scored: int
) -> dict[str, Any]:
    hits = client.search(question, collection=collection, limit=HITS, with_text=False).hits
    right = [hit for hit in hits if hit.document in judged][:1]
    ids = list(dict.fromkeys(hit.id for hit in [*hits[:scored], *right]))
    read = client.reconstruct(ids, collection=collection)
    texts = {one: stored.text for one, stored in zip(ids, read, strict=True)}
    told = [hit.model_dump(include={"id", "document", "chunk", "score"}) for hit in hits]
    for row in told[:scored]:
        row["text"] = texts[row["id"]]
    return {"hits": told, "right": texts[right[0].id] if right else None}
