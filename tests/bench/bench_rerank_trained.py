"""Does a head that learnt from whole passages rerank them well, and whose passages does it take?

The first stage is that of a running platform (`verso up`): SciFact's abstracts and CACM's go into
collections and are searched by vectors and words. A cross-encoder reads the first `--from` records
whole. Its arms, all from the published `pairs` head:

- *none*: as it is;
- *general*: `python -m verso_training head --recipe relevance`, data that a head may ship with;
- *general, then claims*: further on `--claims` of SciFact's training claims, each with its abstract
  and `--wrong` records that the search finds and nobody judged relevant;
- *general, then half of the claims*: how much more claims would give;
- *claims*: without the general passages.

SciFact is CC BY-NC 2.0: what learnt from it is for these figures and is not kept as a head. The
other training claims choose: the epoch, and the head's share in the order (`verso_worker.fusion`).
The test questions are then read once, with what was chosen. *Perfect* puts the judged records among
those that were read first: no head can do better. Brackets are 95 % bootstrap intervals over the
questions of the gain in nDCG@10.

    verso up
    bench_rerank_trained.py --data DIR --work DIR

Limited by the processor; one thread, about an hour. Trained weights and what was searched for stay
in `--work`, from where a later run goes on. Products in bfloat16.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import reranking
import sheet
import torch
from reranking import HITS, Read
from tqdm import tqdm

from verso_client import Client, retrieval
from verso_client.answers import Hit
from verso_client.retrieval import Gain
from verso_standalone.stack import find_artifact
from verso_training.heads import recipe as recipes
from verso_training.heads.pairs import Pair
from verso_training.heads.ranking import Group
from verso_training.quality import passages, ranker
from verso_training.quality.ranker import Taught

_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_EPOCHS = 2
_RATE = 3e-4


@dataclass(frozen=True)
class Arm:
    """What a head learns from; ``claims`` is a share of them, ``reported`` on test questions."""

    name: str
    general: bool = False
    claims: float = 0.0
    reported: bool = False


_ARMS = {
    arm.name: arm
    for arm in (
        Arm("none"),
        Arm("general", general=True, reported=True),
        Arm("general, then claims", general=True, claims=1.0, reported=True),
        Arm("claims", claims=1.0),
        Arm("general, then half of the claims", general=True, claims=0.5),
    )
}


@dataclass(frozen=True)
class Searched:
    """A set's questions with what the platform found and the texts of the first records.

    Attributes:
        hits: Of each question.
        right: The best record of a judged document, of each question that has one found.
    """

    given: retrieval.Set
    hits: Mapping[str, list[Hit]]
    right: Mapping[str, str]

    def only(self, names: Sequence[str]) -> Searched:
        """Give the same for some questions."""
        questions = {name: self.given.questions[name] for name in names}
        given = dataclasses.replace(self.given, questions=questions)
        return Searched(given, self.hits, self.right)

    def groups(self, *, wrong: int, scored: int) -> list[Group]:
        """Give questions to learn from; half of the wrong records are among the first."""
        rng, made = random.Random(0), []
        for name, question in self.given.questions.items():
            judged = self.given.relevant[name]
            others = [
                hit.text or "" for hit in self.hits[name][:scored] if hit.document not in judged
            ]
            if name in self.right:
                drawn = passages.drawn(others, wrong=wrong, rng=rng)
                made.append(Group(question, self.right[name], drawn))
        return made

    def read(self, taught: Taught, *, scored: int, kept: Path) -> list[Read]:
        """Let a head read the first records of every question, or take what it gave before."""
        names = list(self.given.questions)
        if not kept.exists():
            flat = [
                Pair(self.given.questions[name], hit.text or "", 0.0)
                for name in names
                for hit in self.hits[name][:scored]
            ]
            np.save(kept, taught.scores(flat, bfloat16=True))
        found = np.load(kept)
        cuts = np.cumsum([len(self.hits[name][:scored]) for name in names])[:-1]
        return [
            Read(self.hits[name], scores)
            for name, scores in zip(names, np.split(found, cuts), strict=True)
        ]

    def perfect(self, *, scored: int) -> float:
        """Give the nDCG@10 of an order in which the judged among the first records lead, in %."""
        reached = []
        for name in self.given.questions:
            grades, hits = self.given.relevant[name], self.hits[name]
            first = sorted(hits[:scored], key=lambda hit: -grades.get(hit.document, 0))
            order = list(dict.fromkeys(hit.document for hit in [*first, *hits[scored:]]))
            reached.append(retrieval.ndcg(order, grades))
        return reranking.percent(reached)


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
    return Searched(given, hits, right)


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


@dataclass(frozen=True)
class School:
    """What the arms learn from, in their order; an arm that learnt is read from its folder.

    Attributes:
        claims: To learn from.
        choosing: Other claims, that choose.
    """

    data: Path
    work: Path
    claims: Sequence[Group]
    choosing: Sequence[Group]

    def taught(self, arm: Arm) -> Taught:
        """Teach an arm."""
        recipe = recipes.load("relevance")
        artifact = find_artifact()
        taught = ranker.begun(recipe, artifact)
        torch.set_num_threads(recipe.threads)
        if arm.general:
            self._teach(taught, _general(self.data), "relevance")
        if arm.claims:
            score = dataclasses.replace(taught.recipe.score, epochs=_EPOCHS, rate=_RATE)
            further = dataclasses.replace(taught, recipe=recipes.replaced(recipe, score=score))
            share = self.claims[: round(arm.claims * len(self.claims))]
            self._teach(
                further, share, arm.name.replace(",", "").replace(" ", "-"), held_out=self.choosing
            )
        return taught

    def _teach(
        self, taught: Taught, groups: Sequence[Group], name: str, held_out: Sequence[Group] = ()
    ) -> None:
        with tqdm(total=100, unit="%", desc=name, mininterval=30.0) as bar:
            ranker.teach(
                taught,
                groups,
                folder=self.work / "runs" / name,
                held_out=held_out,
                on_progress=lambda p: bar.update(round(100 * p.share) - bar.n),
            )


@functools.cache
def _general(data: Path) -> list[Group]:
    recipe = recipes.load("relevance")
    return passages.shippable(data, **recipe.data, seed=recipe.seed)


def judged(asked: Searched, read: Sequence[Read]) -> dict[float, list[float]]:
    """Give the nDCG@10 of each question by the head's share in the order."""
    return {share: reranking.reached(asked.given, read, share=share) for share in _SHARES}


def chosen(reached: Mapping[float, Sequence[float]]) -> float:
    """Give the share that is best, without the search alone."""
    return max((share for share in reached if share), key=lambda share: np.mean(reached[share]))


def told(reached: Mapping[float, Sequence[float]], share: float) -> dict[str, Any]:
    """Tell what a share reached and gained."""
    gain = retrieval.gain(reached[share], reached[0.0])
    return {"ndcg": reranking.percent(reached[share]), "gain": gain.model_dump()}


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    parser.add_argument("--work", type=Path, required=True, help="keeps what was learnt and found")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--scifact", help="collection that holds it, or shall, and is kept")
    parser.add_argument("--cacm", help="the same for CACM")
    parser.add_argument("--claims", type=int, default=600, help="as many teach; the rest choose")
    parser.add_argument("--wrong", type=int, default=3, help="records beside each right one")
    parser.add_argument("--from", type=int, default=20, dest="scored", help="records a head reads")
    parser.add_argument("--arms", nargs="+", choices=list(_ARMS), default=list(_ARMS))
    return parser.parse_args()


def main() -> None:
    """Run the bench."""
    given = options()
    given.work.mkdir(parents=True, exist_ok=True)
    page = sheet.Sheet("rerank_trained")
    with Client(given.url) as client:
        train, scifact, cacm = (
            searched(
                client,
                given.data / name,
                split=split,
                collection=collection,
                scored=given.scored,
                work=given.work,
            )
            for name, split, collection in (
                ("ir_scifact", "train", given.scifact),
                ("ir_scifact", "test", given.scifact),
                ("ir_cacm", "test", given.cacm),
            )
        )
    names = random.Random(1).sample(sorted(train.given.questions), len(train.given.questions))
    learnt, choosing = train.only(names[: given.claims]), train.only(names[given.claims :])
    school = School(
        given.data,
        given.work,
        learnt.groups(wrong=given.wrong, scored=given.scored),
        choosing.groups(wrong=given.wrong, scored=given.scored),
    )
    asked = {"claims that choose": choosing, "SciFact, test": scifact, "CACM": cacm}
    found: dict[str, Any] = {
        name: {
            "questions": len(one.given.questions),
            "perfect": one.perfect(scored=given.scored),
        }
        for name, one in asked.items()
    }
    for arm in given.arms:
        taught = school.taught(_ARMS[arm])
        read = functools.partial(_read, taught, arm=arm, given=given)
        by_share = judged(choosing, read(choosing, "choosing"))
        share = chosen(by_share)
        shown = {f"{one:g}": reranking.percent(reached) for one, reached in by_share.items()}
        found["claims that choose"][arm] = {"shares": shown, "share": share} | told(by_share, share)
        for name, one in list(asked.items())[1:] if _ARMS[arm].reported else ():
            by_share = judged(one, read(one, one.given.name))
            found[name]["search"] = reranking.percent(by_share[0.0])
            found[name][arm] = told(by_share, share)
    _show(found, given.arms)
    page.finish(found)


def _read(
    taught: Taught, asked: Searched, name: str, *, arm: str, given: argparse.Namespace
) -> list[Read]:
    """Let an arm's head read a set's records; what it gave is kept beside its weights."""
    folder = given.work / "read"
    folder.mkdir(exist_ok=True)
    kept = folder / f"{_slug(arm)}-{name}-{given.scored}.npy"
    return asked.read(taught, scored=given.scored, kept=kept)


def _slug(arm: str) -> str:
    return arm.replace(",", "").replace(" ", "-")


def _show(found: dict[str, Any], arms: Sequence[str]) -> None:
    tables = iter(found.items())
    name, rows = next(tables)
    sheet.table(
        f"{rows['questions']} {name}; nDCG@10 by the head's share, 0 is the search alone; perfect "
        f"{rows['perfect']}",
        ("arm", *(f"{share:g}" for share in _SHARES), "gained at the best"),
        [(arm, *rows[arm]["shares"].values(), _gain(rows[arm])) for arm in arms],
    )
    for name, rows in tables:
        sheet.table(
            f"{name}: {rows['questions']} questions; the search alone {rows.get('search')}, "
            f"perfect {rows['perfect']}",
            ("arm, with the share that was chosen", "nDCG@10", "gained"),
            [(arm, rows[arm]["ndcg"], _gain(rows[arm])) for arm in arms if arm in rows],
        )


def _gain(row: Mapping[str, Any]) -> str:
    return reranking.told(Gain(**row["gain"]))


if __name__ == "__main__":
    main()
