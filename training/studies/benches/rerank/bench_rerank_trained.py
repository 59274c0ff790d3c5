"""Does a head that learnt from whole passages rerank them well, and whose passages does it take?

The first stage is that of a running platform (`verso up`): SciFact's abstracts and CACM's go into
collections and are searched by vectors and words. Each arm scores the first `--from` records whole:

- *pairs*: the published head, a cross-encoder that learnt from single sentences;
- *general*: further on whole passages of other sets, which a head that ships may learn from:
  `python -m studies head --recipe relevance`;
- *general, then claims*: further on `--claims` of SciFact's training claims, each with its abstract
  and `--wrong` records that the search finds and nobody judged relevant;
- *claims*: without the general passages; *general, then half of the claims*: what more would give;
- *claims, question's vector*: no head that reads; the cosine, with a linear change of the
  question's vector that the same claims teach (`query_maps`).

SciFact is CC BY-NC 2.0: what learnt from it is for these figures and is not kept as a head. Of its
test claims more than half ask for an abstract that a learnt claim asks for too (*known*), so that
remembering abstracts is rewarded; the *others* show what was learnt about claims. The head's epoch,
of two, is chosen by the training claims that were not learnt from; so is its share in the order,
once by all of them, of which half are known, and once by the others alone, which choose the epoch
of the map too. The test questions are read once, with what was chosen. *Perfect* puts the judged
records first among those that are read: no head can do better. Brackets are 95 % bootstrap
intervals over the questions of the gain in nDCG@10.

    verso up
    bench_rerank_trained.py --data DIR --work DIR

The limit is the processor; one thread, about an hour and a half for all arms. What was searched
for, learnt and scored stays in `--work`, from where a later run goes on. Products in bfloat16.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from studies.benches.rerank import query_maps, reranking
from studies.benches.rerank.searched import Scores, Searched, searched
from studies.quality import passages, ranker, sets
from studies.quality.job import load_recipe
from studies.quality.ranker import Taught
from verso_client import Client
from verso_client.cli import evaluation as retrieval
from verso_client.cli.evaluation import Gain
from verso_core import manifest
from verso_standalone.stack import find_artifact
from verso_training.heads.ranking.groups import Group

_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
_CHOOSE = {"rest": "all", "rest, others": "the others"}
_EPOCHS = 2
_RATE = 3e-4


@dataclass(frozen=True)
class Arm:
    """A way to score, and its training data.

    Attributes:
        claims: A share of them.
        reported: On the test questions; the other arms only on training claims.
        reads: The texts; else their vectors are compared.
    """

    name: str
    general: bool = False
    claims: float = 0.0
    reported: bool = True
    reads: bool = True

    @property
    def slug(self) -> str:
        """Its name as a file has it."""
        return self.name.replace(",", "").replace("'", "").replace(" ", "-")


_ARMS = {
    arm.name: arm
    for arm in (
        Arm("pairs", reported=False),
        Arm("general", general=True),
        Arm("general, then claims", general=True, claims=1.0),
        Arm("claims", claims=1.0, reported=False),
        Arm("general, then half of the claims", general=True, claims=0.5, reported=False),
        Arm("claims, question's vector", claims=1.0, reads=False),
    )
}


@dataclass(frozen=True)
class Sets:
    """The questions.

    Attributes:
        learnt: Training claims to learn from.
        rest: The other training claims.
        reported: By name.
    """

    learnt: Searched
    rest: Searched
    reported: Mapping[str, Searched]

    def known(self, some: Searched) -> tuple[Searched, Searched]:
        """Part questions in those that ask for an abstract of a learnt claim, and the others."""
        judged, given = self.learnt.judged, some.given
        known = [name for name in given.questions if judged & given.relevant[name].keys()]
        others = [name for name in given.questions if name not in set(known)]
        return some.only(known), some.only(others)


@dataclass(frozen=True)
class School:
    """Trains the arms; a trained one is read from its folder."""

    data: Path
    work: Path
    sets: Sets
    wrong: int

    def scores(self, arm: Arm) -> Scores:
        """Train an arm and return its scoring function."""
        if not arm.reads:
            return self._map().scores
        recipe = load_recipe("relevance")
        torch.set_num_threads(recipe.threads)
        taught = ranker.started(recipe, find_artifact())
        if arm.general:
            self._teach(taught, _general(self.data), "relevance")
        if arm.claims:
            score = dataclasses.replace(taught.recipe.score, epochs=_EPOCHS, rate=_RATE)
            further = dataclasses.replace(taught, recipe=dataclasses.replace(recipe, score=score))
            groups = self.sets.learnt.groups(wrong=self.wrong)
            rest = self.sets.rest.groups(wrong=self.wrong)
            self._teach(further, groups[: round(arm.claims * len(groups))], arm.slug, held_out=rest)
        return functools.partial(taught.scores, bfloat16=True)

    def _teach(
        self, taught: Taught, groups: Sequence[Group], name: str, *, held_out: Sequence[Group] = ()
    ) -> None:
        with tqdm(total=100, unit="%", desc=name, mininterval=30.0) as bar:
            ranker.teach(
                taught,
                groups,
                folder=self.work / "runs" / name,
                held_out=held_out,
                on_progress=lambda p: bar.update(round(100 * p.share) - bar.n),
            )

    def _map(self) -> query_maps.Turned:
        artifact = find_artifact()
        vectors: dict[str, NDArray[np.float32]] = {}
        every = {"learnt": self.sets.learnt, "rest": self.sets.rest, **self.sets.reported}
        for name, one in every.items():
            texts = one.texts()
            encoded = sets.stored_vectors(
                texts,
                artifact=artifact,
                cache=self.work / "vectors" / name,
                scale=manifest.load(artifact).manifest.space.int8_scale,
            )
            vectors |= dict(zip(texts, encoded, strict=True))
        _, others = self.sets.known(self.sets.rest)
        groups, held_out = (one.groups(wrong=one.scored) for one in (self.sets.learnt, others))
        return query_maps.learnt(groups, vectors, held_out=held_out)


@functools.cache
def _general(data: Path) -> list[Group]:
    recipe = load_recipe("relevance")
    return passages.shippable(data, **recipe.data, seed=recipe.seed)


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


def found(given: argparse.Namespace) -> Sets:
    """Search for all questions."""
    search = functools.partial(searched, scored=given.scored, work=given.work)
    scifact, cacm = (given.data / name for name in ("ir_scifact", "ir_cacm"))
    with Client(given.url) as client:
        train = search(client, scifact, split="train", collection=given.scifact)
        test = search(client, scifact, split="test", collection=given.scifact)
        papers = search(client, cacm, split="test", collection=given.cacm)
    names = random.Random(1).sample(sorted(train.given.questions), len(train.given.questions))
    return Sets(
        train.only(names[: given.claims]),
        train.only(names[given.claims :]),
        {"scifact": test, "cacm": papers},
    )


def judged(
    arm: Arm, scores: Scores, questions: Sets, *, work: Path
) -> tuple[dict[str, float], dict[str, dict[float, list[float]]]]:
    """Return the shares by who chose them, and each question's nDCG@10 by part and share."""
    reached: dict[str, dict[float, list[float]]] = {}

    def judge(name: str, some: Searched, shares: Sequence[float]) -> None:
        known, others = questions.known(some)
        kept = work / "read" / f"{arm.slug}-{name}-{some.scored}.npy"
        read = dict(zip(some.given.questions, some.read(scores, kept=kept), strict=True))
        for part, one in ((name, some), (f"{name}, known", known), (f"{name}, others", others)):
            hits = [read[key] for key in one.given.questions]
            if hits:
                reached[part] = {
                    share: reranking.reached(one.given, hits, share=share) for share in shares
                }

    judge("rest", questions.rest, _SHARES)
    chosen = {
        by: max(_SHARES[1:], key=lambda one: float(np.mean(reached[by][one]))) for by in _CHOOSE
    }
    for name, some in questions.reported.items() if arm.reported else ():
        judge(name, some, (0.0, *sorted({*chosen.values()})))
    return chosen, reached


def main() -> None:
    """Run the bench."""
    given = options()
    given.work.mkdir(parents=True, exist_ok=True)
    page = sheet.Sheet("rerank_trained")
    questions = found(given)
    school = School(given.data, given.work, questions, given.wrong)
    parts = {"rest": questions.rest, **questions.reported}
    told: dict[str, Any] = {"perfect": {name: one.perfect() for name, one in parts.items()}}
    for name in given.arms:
        arm = _ARMS[name]
        chosen, reached = judged(arm, school.scores(arm), questions, work=given.work)
        told[name] = {"chosen": chosen} | {
            part: {
                "questions": len(by_share[0.0]),
                "ndcg": {f"{one:g}": reranking.percent(each) for one, each in by_share.items()},
                "gain": {
                    f"{one:g}": retrieval.gain(by_share[one], by_share[0.0]).model_dump()
                    for one in {*chosen.values()}
                },
            }
            for part, by_share in reached.items()
        }
    _show(told, given.arms)
    page.finish(told)


def _show(told: Mapping[str, Any], arms: Sequence[str]) -> None:
    first = told[arms[0]]
    for part in ("rest", "rest, known", "rest, others"):
        rows = {arm: told[arm][part] for arm in arms}
        sheet.table(
            f"SciFact, {first[part]['questions']} training claims that were not learnt from "
            f"({_CHOOSE.get(part, 'known')}): nDCG@10 by the head's share",
            ("arm", *(f"{one:g}" for one in _SHARES), "gained by the share that all choose"),
            [
                (arm, *row["ndcg"].values(), _gain(row, told[arm]["chosen"]["rest"]))
                for arm, row in rows.items()
            ],
        )
    for part in ("scifact", "scifact, known", "scifact, others", "cacm"):
        rows = {arm: told[arm][part] for arm in arms if part in told[arm]}
        if not rows:
            continue
        asked = next(iter(rows.values()))
        sheet.table(
            f"{part}: {asked['questions']} test questions; the search {asked['ndcg']['0']}; "
            f"perfect of all {told['perfect'][part.split(',')[0]]}",
            ("arm", "chosen by", "share", "nDCG@10", "gained"),
            [
                (arm, who, share, row["ndcg"][f"{share:g}"], _gain(row, share))
                for arm, row in rows.items()
                for by, who in _CHOOSE.items()
                for share in [told[arm]["chosen"][by]]
            ],
        )


def _gain(row: Mapping[str, Any], share: float) -> str:
    return reranking.told(Gain(**row["gain"][f"{share:g}"]))


if __name__ == "__main__":
    main()
