"""The mean of the answers of several readers of the same rows.

Nothing is trained here, and nothing is weighed: adapters, heads on stored vectors and students
that other studies trained are taken as they are, each kind by the mean of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.tasks import frozen
from studies.tasks.pairs import apart
from studies.tasks.result import StudyResult
from verso_training.heads import scoring, signals
from verso_training.heads.signals import Interval

Found = Mapping[str, StudyResult]
Floats = NDArray[np.float64]
Measure = Callable[[Floats, NDArray[np.int64]], float]
"""The figure of these answers, on these rows."""


@dataclass(frozen=True)
class Mean:
    """The figure of each reader and that of all together, in percent."""

    readers: Mapping[str, float]
    together: Interval


def vectors(found: Found) -> Mean | None:
    """Spearman on STS-B test of two adapters' vectors, side by side: 768 bytes a text.

    The cosine of two pairs of unit vectors, each pair laid end to end, is the mean of the cosines.
    """
    titles = {
        apart.COSINE.name: "adapter, cosine objective",
        apart.RANKED.name: "adapter, ranking objective too",
    }
    if not titles.keys() <= found.keys():
        return None
    gold = np.asarray(found[apart.COSINE.name].arrays["test_gold"], np.float64)
    kinds = {title: [found[name].arrays["test"]] for name, title in titles.items()}
    return _mean(kinds, lambda said, rows: 100 * scoring.spearman(said[rows], gold[rows]))


def similarity(found: Found) -> Mean | None:
    """Spearman on STS-B dev: the adapter that reads both texts, and the cosine of adapted vectors.

    Both estimate the same score in [0, 1].
    """
    if not {"lora-similarity", apart.COSINE.name} <= found.keys():
        return None
    both = found["lora-similarity"].arrays
    gold = np.asarray(both["similarity_dev_gold"], np.float64)
    kinds = {
        "adapter, texts read together": [both["similarity_dev"]],
        "adapter, cosine of vectors": [found[apart.COSINE.name].arrays["dev"]],
    }
    return _mean(kinds, lambda said, rows: 100 * scoring.spearman(said[rows], gold[rows]))


def duplicates(found: Found) -> Mean | None:
    """Accuracy on Quora's test pairs: the adapter, and the layers on stored vectors."""
    if not {"lora-duplicates", "frozen-duplicates"} <= found.keys():
        return None
    adapter, heads = found["lora-duplicates"].arrays, found["frozen-duplicates"].arrays
    kinds = {
        "adapter": [_logit(adapter["duplicates_test"])],
        "layers on stored vectors, 3 seeds": [
            _logit(heads[f"duplicates_test_{seed}"]) for seed in frozen.SEEDS
        ],
    }
    truth = adapter["duplicates_test_gold"] >= np.float64(0.5)
    return _mean(kinds, lambda said, rows: 100 * float(((said >= 0) == truth)[rows].mean()))


def sentiment(found: Found) -> Mean | None:
    """Accuracy on SST-5 dev: the adapter, and the students of half the layers that it taught."""
    if not {"lora-sentiment", "distillation"} <= found.keys():
        return None
    adapter, taught = found["lora-sentiment"].arrays, found["distillation"].arrays
    kinds = {
        "adapter": [_softmax(adapter["sentiment_dev"])],
        "students of half its layers, 2 seeds": [_softmax(taught[f"taught_{n}"]) for n in (0, 1)],
    }
    gold = adapter["sentiment_dev_gold"]
    return _mean(kinds, lambda said, rows: 100 * float((said.argmax(-1) == gold)[rows].mean()))


def _mean(kinds: Mapping[str, Sequence[NDArray[np.generic]]], measure: Measure) -> Mean:
    said = {name: np.mean(np.asarray(of, np.float64), axis=0) for name, of in kinds.items()}
    whole: Floats = np.mean([*said.values()], axis=0)
    every = np.arange(len(whole))
    alone = {name: measure(answers, every) for name, answers in said.items()}
    return Mean(alone, signals.bootstrap(lambda rows: measure(whole, rows), len(whole)))


def _logit(scores: NDArray[np.generic]) -> Floats:
    p = np.asarray(scores, np.float64).clip(1e-6, 1.0 - 1e-6)
    found: Floats = np.log(p / (1.0 - p))
    return found


def _softmax(logits: NDArray[np.generic]) -> NDArray[np.float32]:
    return signals.softmax(np.asarray(logits, np.float32))
