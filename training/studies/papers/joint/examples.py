"""Short texts that keep a space what it is: questions with sentences, and pairs with scores."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from studies.quality import pairsets
from studies.quality.squad import Part
from verso_training.encoder import token_ids

_QUESTIONS = 8
"""Questions a step, each with a sentence that answers it and one beside it."""
_PAIRS = 8
_MOST_TOKENS = 96


@dataclass(frozen=True)
class Guard:
    """What a step reads beside its chunks.

    Attributes:
        texts: Token ids of questions and sentences, near and far, for the old cosines.
        left, right: Token ids of scored pairs.
        scores: From 0 to 1.
    """

    texts: list[list[int]]
    left: list[list[int]]
    right: list[list[int]]
    scores: list[float]


class Examples:
    """Draws a step's guard, the same for every arm.

    Args:
        groups: Token ids: a question, an answering sentence, another sentence.
        pairs: Token ids of both texts, and the score.
    """

    def __init__(
        self,
        groups: Sequence[tuple[list[int], ...]],
        pairs: Sequence[tuple[list[int], list[int], float]],
    ) -> None:
        self._groups = groups
        self._pairs = pairs

    def draw(self, step: int) -> Guard:
        """Return the guard of a step."""
        rng = random.Random(step)
        chosen = rng.sample(self._groups, min(_QUESTIONS, len(self._groups)))
        scored = rng.sample(self._pairs, min(_PAIRS, len(self._pairs)))
        return Guard(
            [ids for group in chosen for ids in group],
            [left for left, _, _ in scored],
            [right for _, right, _ in scored],
            [score for _, _, score in scored],
        )


def read(data: Path, tokenizer: Tokenizer) -> Examples:
    """Read SQuAD's questions of articles to train on, and STS-B's training pairs."""

    def ids(text: str) -> list[int]:
        return token_ids(tokenizer.encode(text).ids)[:_MOST_TOKENS]

    groups = [tuple(map(ids, group)) for group in _groups(data)]
    scored = pairsets.stsb(data, "train")
    pairs = [(ids(pair.a), ids(pair.b), pair.score) for pair in scored]
    return Examples(groups, pairs)


def _groups(data: Path) -> Iterator[tuple[str, str, str]]:
    for ranking in pairsets.squad_sentences(data, Part.TRAIN):
        wrong = [at for at in range(len(ranking.candidates)) if at not in ranking.right]
        if wrong and ranking.right:
            yield (
                ranking.question,
                ranking.candidates[min(ranking.right)],
                ranking.candidates[wrong[0]],
            )
