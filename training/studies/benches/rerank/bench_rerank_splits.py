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

The limit is the processor; one thread. With `--collection` several runs share one that is kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sheet
from tokenizers import Tokenizer

from studies.benches.rerank import mixing, reranking
from studies.benches.rerank.mixing import Asked, Mix, Order, Scores
from studies.benches.rerank.readings import Way, readers
from verso_client import Client
from verso_client.cli import evaluation as retrieval
from verso_core import heads, registry
from verso_core.jobs import RERANK_SHARE, SearchMode
from verso_core.texts import sentence_spans
from verso_standalone.stack import find_artifact
from verso_worker.rules.score import Score

_DEPTHS = (10, 20, 30, 50, 100)
_ALL = 1000  # hits of the words alone, so that the first records are among them


def asked(
    client: Client, given: retrieval.Set, pairing: Score, tried: Sequence[Way], *,
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
            np.array([mixing.title(given.documents[hit.document]) for hit in first]),
            (search - mixing.WORDS * words) / (1 - mixing.WORDS),
            words,
            {way.head: way.scores(pairing, question, texts).astype(float) for way in tried},
        )


@dataclass(frozen=True, slots=True)
class Splits:
    """The tables of one run; nDCG@10 is that of each question."""

    given: retrieval.Set
    found: Sequence[Asked]

    def reached(self, order: Callable[[Asked], Order]) -> list[float]:
        """Return the nDCG@10 of each question by an order of the first records."""
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
            best = [
                mixing.oracle(one, self.given.relevant[one.name], depth=depth) for one in self.found
            ]
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
            (
                "first records",
                "nDCG@10 of the best order",
                "lost: not among them",
                "lost: their order",
            ),
            rows,
        )
        return told

    def parts(self) -> dict[str, Any]:
        """The same records by one score alone."""
        ways: dict[str, Callable[[Asked], Scores]] = {
            "the vectors alone": _vector,
            "the words alone": _words,
        }
        ways |= {f"{head} alone": _by(head) for head in self.found[0].read}
        rows, told = [], {}
        for name, scores in ways.items():
            gains = self.gained(scores)
            near, said = (
                [mixing.correlation(scores(one), part(one)) for one in self.found]
                for part in (_vector, _words)
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
        for name, mix in mixing.MIXES.items():
            gains = self.gains(head, mix)
            rows.append((name, _sure(gains, signed=True)))
            told[name] = _points(gains)
        for share in (0.1, 0.2, 0.3, 0.5, 0.6):
            gains = self.gains(head, mixing.shared(share))
            rows.append((f"served, share {share}", _sure(gains, signed=True)))
            told[f"share {share}"] = _points(gains)
        sheet.table(f"{head}: ways to mix, share {RERANK_SHARE}", ("mixed", "gained"), rows)
        return told

    def gains(self, head: str, mix: Mix) -> list[float]:
        """Return what each question gains."""
        return self.gained(lambda one: mix(one, one.read[head]))

    def gained(self, scores: Callable[[Asked], Scores]) -> list[float]:
        """Return what each question gains where the first records stand by other scores."""
        return _gains(self.reached(lambda one: mixing.ordered(scores(one))), self.plain)

    def lengths(self, head: str, tokens: Tokenizer, *, window: int) -> dict[str, Any]:
        """Questions apart by whether the head can cut them, and by whether they are a sentence."""
        gains = self.gains(head, mixing.MIXES["served: both spread over 0 to 1"])
        counts = [len(tokens.encode(one.text).ids) - 2 for one in self.found]
        several = [len(sentence_spans(one.text.encode())) > 1 for one in self.found]
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
        found = mixing.correlation(np.array(counts, float), np.array(gains))
        title = f"{head}: questions; rank correlation of gain and length {found:+.2f}"
        sheet.table(title, ("questions", "count", "gained"), rows)
        return told | {"correlation": found}

    def kinds(self, head: str) -> dict[str, Any]:
        """Records apart by whether they are a title alone."""
        mix = mixing.MIXES["served: both spread over 0 to 1"]
        order = {one.name: mixing.ordered(mix(one, one.read[head])) for one in self.found}
        told: dict[str, Any] = {}
        rows: list[tuple[str, str]] = []
        for name, kind in (("titles alone", True), ("with an abstract", False)):
            changes = [moved for one in self.found if (moved := self._moved(one, order, kind))]
            up = [float(np.mean(each)) for each in changes]
            rows.append((f"places up, relevant {name}", _sure(up, signed=True, scale=1)))
            told[f"up, {name}"] = {"mean": float(np.mean(up)), "questions": len(up)}
            read = [share for one in self.found if (share := self._told(one, kind)) is not None]
            rows.append((f"% read of the relevant {name}", _sure(read)))
            told[f"read, {name}"] = 100 * float(np.mean(read))
        apart = _gains(
            self.reached(lambda one: mixing.within(order[one.name], one.titles)), self.plain
        )
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
                self._share(one, mixing.ordered(one.read[head])[:10]) for one in self.found
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

    def _told(self, one: Asked, kind: bool) -> float | None:
        """Return the share of a question's relevant documents of a kind that are read at all."""
        grades = self.given.relevant[one.name]
        wanted = {key for key in grades if mixing.title(self.given.documents[key]) == kind}
        first = {hit.document for hit in one.hits[: len(one.words)]}
        return len(wanted & first) / len(wanted) if wanted else None

    def _moved(self, one: Asked, order: Mapping[str, Order], kind: bool) -> list[int]:
        after = {place: n for n, place in enumerate(order[one.name])}
        return [place - after[place] for place in self._relevant(one) if one.titles[place] == kind]

    @staticmethod
    def _share(one: Asked, places: Sequence[int]) -> float | None:
        return float(one.titles[list(places)].mean()) if len(places) else None


def _vector(one: Asked) -> Scores:
    return one.vector


def _words(one: Asked) -> Scores:
    return one.words


def _by(head: str) -> Callable[[Asked], Scores]:
    return lambda one: one.read[head]


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
    """Return the tokens of a question that `pairs` reads whatever the text: half of its window."""
    most = heads.read(registry.head(models, "pairs")).max_tokens
    assert most is not None
    return (most - 3) // 2


if __name__ == "__main__":
    main()
