"""Where a reranked search loses: what is not found, long questions, short records, or the mixing.

The first stage is that of a running platform (`verso up`). Each head reads the texts of the first
`--from` records in this process by the worker's own code, as `rerank` has it do: a record counts by
its best sentence, the head's score is mixed with the search's. Then, by nDCG@10:

- what the best order of the first records would give: what it lacks was not found, the rest lies
  in their order;
- the order of the same records by the search's own parts, the vectors and the words, and by a head
  alone;
- other ways to mix. Two of them keep the words' half of the search's score, or halve it without
  any head: a head's share is taken from the words too;
- questions apart by length, and records apart by whether they are more than a title.

Brackets are 95 % bootstrap intervals over the questions. Of a set's test questions this tells only
causes: what is served must not be chosen by them.

    verso up
    bench_rerank_splits.py ir_cacm

Limited by the processor; one thread. With `--collection` several runs share one that is kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import reranking
import sheet
from numpy.typing import NDArray
from readings import Way, readers
from tokenizers import Tokenizer

from verso_client import Client, retrieval
from verso_client.answers import Hit
from verso_core import heads, registry
from verso_core.jobs import RERANK_SHARE, SearchMode
from verso_standalone.stack import find_artifact
from verso_worker import fusion, sentences
from verso_worker.pairing import Pairing

Scores = NDArray[np.float64]
Order = Sequence[int]

_DEPTHS = (10, 20, 30, 50, 100)
_ALL = 1000  # hits of the words alone, so that the first records are among them


@dataclass(frozen=True, slots=True)
class Asked:
    """One question, and the first records that the search gave, in its order.

    Attributes:
        name: of the question.
        text: the question.
        hits: as many as `verso eval retrieval` asks for.
        titles: whether a record is one line. Shape: (N,).
        vector: what the vector gave to the search's score, in [0, 1]. Shape: (N,).
        words: what the words gave, in [0, 1]; the score is the mean of both. Shape: (N,).
        read: scores by head. Shape of each: (N,).
    """

    name: str
    text: str
    hits: Sequence[Hit]
    titles: NDArray[np.bool_]
    vector: Scores
    words: Scores
    read: Mapping[str, Scores]

    @property
    def search(self) -> Scores:
        """The search's scores. Shape: (N,)."""
        return np.array([hit.score for hit in self.hits[: len(self.words)]])

    def documents(self, order: Order) -> list[str]:
        """Give documents where the first records stand in another order, each once."""
        hits = [*(self.hits[place] for place in order), *self.hits[len(self.words) :]]
        return list(dict.fromkeys(hit.document for hit in hits))


Mix = Callable[[Asked, Scores], Scores]
"""Scores of the first records from what the search and a head gave them. Shape: (N,)."""


def spread(values: Scores) -> Scores:
    """Spread values over 0 to 1, as a worker does."""
    return (values - values.min()) / (np.ptp(values) or 1.0)


def _standard(values: Scores) -> Scores:
    return (values - values.mean()) / (values.std() or 1.0)


def _places(values: Scores) -> Scores:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


def _mixed(scale: Callable[[Scores], Scores]) -> Mix:
    return lambda asked, read: (1 - RERANK_SHARE) * scale(asked.search) + RERANK_SHARE * scale(read)


_HALF = 1 - fusion.DENSE_SHARE
MIXES: Mapping[str, Mix] = {
    "served: both spread over 0 to 1": _mixed(spread),
    "both by mean and deviation": _mixed(_standard),
    "both by place": _mixed(_places),
    "the search as it is, the head spread": lambda asked, read: (
        (1 - RERANK_SHARE) * asked.search + RERANK_SHARE * spread(read)
    ),
    "words keep their half, the head replaces the vector": lambda asked, read: (
        _HALF * asked.words
        + (1 - _HALF - RERANK_SHARE) * asked.vector
        + RERANK_SHARE * spread(read) * np.ptp(asked.vector)
    ),
    "no head: the vector takes as much from the words": lambda asked, _: (
        (1 - RERANK_SHARE) * _HALF * asked.words + (1 - (1 - RERANK_SHARE) * _HALF) * asked.vector
    ),
}


def asked(
    client: Client, given: retrieval.Set, pairing: Pairing, tried: Sequence[Way], *,
    collection: str, scored: int,
) -> Iterator[Asked]:  # fmt: skip
    """Search for each question and let every head read the first records."""
    for name, question in given.questions.items():
        found = client.search(
            question, collection=collection, limit=reranking.HITS, with_text=False
        )
        by_words = client.search(
            question, collection=collection, limit=_ALL, mode=SearchMode.SPARSE, with_text=False
        ).hits
        first = found.hits[:scored]
        ids = [hit.id for hit in first]
        texts = [one.text or "" for one in client.reconstruct(ids, collection=collection)]
        weights = {hit.id: hit.score / by_words[0].score for hit in by_words}
        words = np.array([weights.get(one, 0.0) for one in ids])
        search = np.array([hit.score for hit in first])
        yield Asked(
            name,
            question,
            found.hits,
            np.array(["\n" not in given.documents[hit.document] for hit in first]),
            (search - _HALF * words) / (1 - _HALF),
            words,
            {way.head: way.scores(pairing, question, texts).astype(float) for way in tried},
        )


def ordered(scores: Scores) -> list[int]:
    """Give places, best first, equal ones as they stood."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def within(order: Order, kinds: NDArray[np.bool_]) -> list[int]:
    """Move records among the places of their own kind only, each kind in a given order."""
    queues = {kind: iter([place for place in order if kinds[place] == kind]) for kind in (0, 1)}
    return [next(queues[int(kind)]) for kind in kinds]


def oracle(one: Asked, grades: Mapping[str, int], *, depth: int) -> float:
    """Give the nDCG@10 of the best order of so many first records."""
    there = list(dict.fromkeys(hit.document for hit in one.hits[:depth]))
    return retrieval.ndcg(sorted(there, key=lambda each: -grades.get(each, 0)), grades)


def correlation(one: Scores, other: Scores) -> float:
    """Spearman's rank correlation; 0 where one of both is the same everywhere."""
    if not (np.ptp(one) and np.ptp(other)):
        return 0.0
    return float(np.corrcoef(_places(one), _places(other))[0, 1])


@dataclass(frozen=True, slots=True)
class Splits:
    """The tables of one run; nDCG@10 is that of each question."""

    given: retrieval.Set
    found: Sequence[Asked]

    def reached(self, order: Callable[[Asked], Order]) -> list[float]:
        """Give the nDCG@10 of each question by an order of the first records."""
        return [
            retrieval.ndcg(one.documents(order(one)), self.given.relevant[one.name])
            for one in self.found
        ]

    @property
    def plain(self) -> list[float]:
        """What the search alone reaches."""
        return self.reached(lambda one: range(len(one.words)))

    def depths(self) -> dict[str, Any]:
        """What is not among the first records, and what is not in their order."""
        rows, told = [], {}
        for depth in _DEPTHS:
            best = [oracle(one, self.given.relevant[one.name], depth=depth) for one in self.found]
            lost = [best_one - one for best_one, one in zip(best, self.plain, strict=True)]
            figures = (best, [1 - one for one in best], lost)
            rows.append((f"{depth}", *(_sure(one) for one in figures)))
            told[f"{depth}"] = {
                name: 100 * float(np.mean(one))
                for name, one in zip(("best order", "not found", "order"), figures, strict=True)
            }
        sheet.table(
            f"{self.given.name}, {len(self.found)} questions: the search reaches "
            f"{_sure(self.plain)} of 100",
            ("first records", "their best order", "not among them", "lost by their order"),
            rows,
        )
        return told

    def parts(self) -> dict[str, Any]:
        """The same records by one score alone."""
        ways: dict[str, Callable[[Asked], Scores]] = {
            "the vectors alone": lambda one: one.vector,
            "the words alone": lambda one: one.words,
        }
        for head in self.found[0].read:
            ways[f"{head} alone"] = lambda one, head=head: one.read[head]  # type: ignore[misc]
        rows, told = [], {}
        for name, scores in ways.items():
            gains = _gains(self.reached(lambda one, s=scores: ordered(s(one))), self.plain)  # type: ignore[misc]
            near, said = (
                [correlation(scores(one), part(one)) for one in self.found]
                for part in (lambda one: one.vector, lambda one: one.words)
            )
            rows.append((name, _sure(gains, signed=True), _mean(near), _mean(said)))
            told[name] = {
                "gain": _points(gains),
                "as vectors": _mean(near),
                "as words": _mean(said),
            }
        title = "The first records by one score; rank correlation with each part of the search's"
        sheet.table(title, ("by", "gained", "vectors", "words"), rows)
        return told

    def mixes(self, head: str) -> dict[str, Any]:
        """The ways to mix a head's score with the search's."""
        rows, told = [], {}
        for name, mix in MIXES.items():
            gains = self.gains(head, mix)
            rows.append((name, _sure(gains, signed=True)))
            told[name] = _points(gains)
        for share in (0.1, 0.2, 0.3, 0.5, 0.6):
            gains = self.gains(head, _shared(share))
            rows.append((f"served, share {share}", _sure(gains, signed=True)))
            told[f"share {share}"] = _points(gains)
        sheet.table(f"{head}: ways to mix, share {RERANK_SHARE}", ("mixed", "gained"), rows)
        return told

    def gains(self, head: str, mix: Mix) -> list[float]:
        """Give what each question gains."""
        return _gains(self.reached(lambda one: ordered(mix(one, one.read[head]))), self.plain)

    def lengths(self, head: str, tokens: Tokenizer, *, window: int) -> dict[str, Any]:
        """Questions apart by whether the head can cut them, and by whether they are a sentence."""
        gains = self.gains(head, MIXES["served: both spread over 0 to 1"])
        counts = [len(tokens.encode(one.text).ids) - 2 for one in self.found]
        several = [len(sentences.cut(one.text.encode())) > 1 for one in self.found]
        apart = {
            f"more than {window} tokens": [count > window for count in counts],
            f"at most {window} tokens": [count <= window for count in counts],
            "several sentences": several,
            "one sentence": [not one for one in several],
        }
        told: dict[str, Any] = {}
        rows = []
        for name, chosen in apart.items():
            part = [gain for gain, here in zip(gains, chosen, strict=True) if here]
            if part:
                rows.append((name, len(part), _sure(part, signed=True)))
                told[name] = _points(part) | {"questions": len(part)}
        found = correlation(np.array(counts, float), np.array(gains))
        title = f"{head}: questions; rank correlation of gain and length {found:+.2f}"
        sheet.table(title, ("questions", "count", "gained"), rows)
        return told | {"correlation": found}

    def kinds(self, head: str) -> dict[str, Any]:
        """Records apart by whether they are a title alone."""
        mix = MIXES["served: both spread over 0 to 1"]
        order = {one.name: ordered(mix(one, one.read[head])) for one in self.found}
        told: dict[str, Any] = {}
        rows: list[tuple[str, str]] = []
        for name, kind in (("titles alone", True), ("with an abstract", False)):
            changes = [moved for one in self.found if (moved := self._moved(one, order, kind))]
            up = [float(np.mean(each)) for each in changes]
            rows.append((f"places up, relevant {name}", _sure(up, signed=True, scale=1)))
            told[f"up, {name}"] = {"mean": float(np.mean(up)), "questions": len(up)}
        apart = _gains(self.reached(lambda one: within(order[one.name], one.titles)), self.plain)
        rows.append(("gained, each kind among its own", _sure(apart, signed=True)))
        served = _gains(self.reached(lambda one: order[one.name]), self.plain)
        between = [whole - part for whole, part in zip(served, apart, strict=True)]
        rows.append(("gained by kinds changing places", _sure(between, signed=True)))
        shares = {
            "relevant": [self._share(one, self._relevant(one)) for one in self.found],
            "first 10, search": [self._share(one, range(10)) for one in self.found],
            f"first 10, {head} mixed": [
                self._share(one, order[one.name][:10]) for one in self.found
            ],
            f"first 10, {head} alone": [
                self._share(one, ordered(one.read[head])[:10]) for one in self.found
            ],
        }
        for name, values in shares.items():
            known = [value for value in values if value is not None]
            rows.append((f"% titles alone: {name}", _sure(known)))
            told[f"titles, {name}"] = float(np.mean(known))
        sheet.table(f"{head}: records that are a title, and others", ("what", ""), rows)
        return told | {"within": _points(apart), "between": _points(between)}

    def _relevant(self, one: Asked) -> list[int]:
        grades = self.given.relevant[one.name]
        return [n for n in range(len(one.words)) if one.hits[n].document in grades]

    def _moved(self, one: Asked, order: Mapping[str, Order], kind: bool) -> list[int]:
        after = {place: n for n, place in enumerate(order[one.name])}
        return [place - after[place] for place in self._relevant(one) if one.titles[place] == kind]

    @staticmethod
    def _share(one: Asked, places: Sequence[int]) -> float | None:
        return float(one.titles[list(places)].mean()) if len(places) else None


def _shared(share: float) -> Mix:
    return lambda asked, read: (1 - share) * spread(asked.search) + share * spread(read)


def _gains(reached: Sequence[float], plain: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(reached, plain, strict=True)]


def _mean(values: Sequence[float]) -> str:
    return f"{float(np.mean(values)):.2f}"


def _sure(values: Sequence[float], *, signed: bool = False, scale: float = 100) -> str:
    """Show a mean with its interval, in points."""
    form = "+.1f" if signed else ".1f"
    low, high = (scale * one for one in retrieval.bounds(values))
    return f"{scale * float(np.mean(values)):{form}} [{low:{form}}, {high:{form}}]"


def _points(gains: Sequence[float]) -> dict[str, float]:
    low, high = retrieval.bounds(gains)
    return {"mean": 100 * float(np.mean(gains)), "low": 100 * low, "high": 100 * high}


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("set", type=Path, help="folder in the layout of BEIR")
    parser.add_argument("--split", default="test")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--collection", help="holds the set, or shall, and is kept")
    parser.add_argument("--models", type=Path, help="folder of the artifact and the heads")
    parser.add_argument("--heads", nargs="+", default=["alike", "pairs"])
    parser.add_argument("--questions", type=int, default=1000, help="at most, drawn at random")
    parser.add_argument("--from", type=int, default=30, dest="scored", help="records they read")
    options = parser.parse_args()
    page = sheet.Sheet("rerank_splits")
    models = options.models or find_artifact().parent
    given = reranking.drawn(options.set, split=options.split, count=options.questions)
    tokens = Tokenizer.from_file(str(registry.resolve(models) / "encoder_tokenizer.json"))
    tokens.no_truncation()
    with (
        readers(models, options.heads, tokens=256) as (pairing, _, tried),
        Client(options.url) as client,
        reranking.taken_in(client, given, collection=options.collection) as collection,
    ):
        best = [way for way in tried if way.sentences]
        found = Splits(
            given,
            list(asked(client, given, pairing, best, collection=collection, scored=options.scored)),
        )
    told: dict[str, Any] = {"depths": found.depths(), "parts": found.parts()}
    titles = any(one.titles.any() and not one.titles.all() for one in found.found)
    window = _window(models)
    for head in options.heads:
        told[head] = {"mixes": found.mixes(head)}
        told[head]["lengths"] = found.lengths(head, tokens, window=window)
        if titles:
            told[head]["kinds"] = found.kinds(head)
    page.finish({"set": given.name, "split": options.split, "from": options.scored, **told})


def _window(models: Path) -> int:
    """Give the tokens of a question that `pairs` reads whatever the text: half of its window."""
    most = heads.read(registry.head(models, "pairs")).max_tokens
    assert most is not None
    return (most - 3) // 2


if __name__ == "__main__":
    main()
