"""The mean answer of the readers of CLINC150, and its errors.

Readers are the adapters and the heads on stored vectors, by seed. Their log probabilities are
added without weights. Scope is decided by a signal of one kind of reader or the sum of two signals,
each the mean of its readers and in units of its deviation on validation rows in scope. Classifier
and signal are those that do best on validation rows; test rows are looked at once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.intents import scope
from studies.tasks.adapters import CLINC, MORE, SEEDS
from studies.tasks.result import Arrays, StudyResult
from verso_training.heads import signals
from verso_training.heads.rows import RowSplit
from verso_training.heads.signals import Interval

Found = Mapping[str, StudyResult]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
HEADS = f"frozen-{CLINC.study}"
ADAPTERS = (CLINC, *(one for one in MORE if one.seed))
"""One a seed."""
_SIGNALS = ("softmax", "energy", "mahalanobis", "knn", "label")
_HELD_OUT, _TEST = RowSplit.VALIDATION, RowSplit.TEST


@dataclass(frozen=True)
class Classifier:
    """Accuracy on validation rows and test rows in scope, in percent.

    Attributes:
        said: Labels of the test rows in scope. Shape: (N,).
    """

    validation: float
    test: Interval
    said: NDArray[np.int64]


@dataclass(frozen=True)
class Signal:
    """How well a signal separates texts in scope from others, in percent."""

    validation: float
    auroc: Interval
    fpr95: Interval


@dataclass(frozen=True)
class Rows:
    """The rows of one split, and the answers of each kind of reader.

    Attributes:
        labels: Their names.
        gold: Label numbers. Shape: (N,).
        inside: Which are in scope. Shape: (N,).
        kinds: Arrays of the readers of each kind, by ``NAME`` of a study's arrays.
    """

    labels: Sequence[str]
    gold: NDArray[np.int64]
    inside: Flags
    kinds: Mapping[str, Sequence[Mapping[str, Floats]]]


def rows(found: Found, split: RowSplit) -> Rows | None:
    """Those of CLINC150; adapters of the seeds that were trained so far."""
    adapters = [found[one.study].arrays for one in ADAPTERS if one.study in found]
    heads = found.get(HEADS) or found.get(CLINC.study)
    if heads is None or not adapters or f"inside_{split}" not in heads.arrays:
        return None
    return Rows(
        [str(name) for name in heads.arrays["labels"]],
        np.asarray(heads.arrays[f"gold_{split}"], np.int64),
        np.asarray(heads.arrays[f"inside_{split}"], np.bool_),
        {
            "adapter": [_reader(arrays, "adapter", split) for arrays in adapters],
            "vector": [_reader(heads.arrays, f"vector_{s}", split) for s in SEEDS],
        },
    )


def _reader(arrays: Arrays, name: str, split: RowSplit) -> dict[str, Floats]:
    keys = {signal: f"{name}:{signal}_{split}" for signal in _SIGNALS}
    told = {signal: np.asarray(arrays[k], np.float64) for signal, k in keys.items() if k in arrays}
    logits = np.asarray(arrays[f"{name}_{split}"], np.float32)
    return told | {"logits": scope.log_softmax(logits).astype(np.float64)}


def _whole(part: Rows | None) -> Rows | None:
    """Rows for which every reader has every signal."""
    if part is None:
        return None
    told = (signal in reader for of in part.kinds.values() for reader in of for signal in _SIGNALS)
    return part if all(told) else None


def classifiers(found: Found) -> dict[str, Classifier]:
    """Every classifier by title; empty where the readers are not trained yet."""
    held_out, test = rows(found, _HELD_OUT), rows(found, _TEST)
    if held_out is None or test is None:
        return {}
    seeds = len(test.kinds["adapter"])
    made = {
        "adapter": _classifier(held_out, test, ("adapter",), seeds=1),
        "adapter and head on vectors": _classifier(held_out, test, (*test.kinds,), seeds=1),
    }
    if seeds > 1:
        made[f"{seeds} adapters"] = _classifier(held_out, test, ("adapter",))
        every = _classifier(held_out, test, (*test.kinds,))
        made[f"{seeds} adapters and {len(SEEDS)} heads on vectors"] = every
    return made


def readers(found: Found) -> dict[str, int]:
    """How many of each kind there are."""
    part = _whole(rows(found, _TEST))
    return {} if part is None else {kind: len(of) for kind, of in part.kinds.items()}


def chosen(of: Mapping[str, Classifier | Signal]) -> str:
    """The title of the best choice on validation rows."""
    return max(of, key=lambda title: of[title].validation)


def _classifier(
    held_out: Rows, test: Rows, kinds: Sequence[str], *, seeds: int | None = None
) -> Classifier:
    said = {}
    for part in (held_out, test):
        both = sum(
            np.mean([reader["logits"] for reader in part.kinds[kind][:seeds]], axis=0)
            for kind in kinds
        )
        said[id(part)] = _labels(np.asarray(both), part)
    right = said[id(test)] == test.gold[test.inside]
    return Classifier(
        100 * float((said[id(held_out)] == held_out.gold[held_out.inside]).mean()),
        signals.bootstrap(lambda index: 100 * float(right[index].mean()), len(right)),
        said[id(test)],
    )


def _labels(logits: Floats, part: Rows) -> NDArray[np.int64]:
    """The likeliest label in scope of each row in scope."""
    logits = logits[part.inside].copy()
    for label in np.unique(part.gold[~part.inside]):
        logits[:, label] = -np.inf
    found: NDArray[np.int64] = logits.argmax(-1)
    return found


def compare_signals(found: Found) -> dict[str, Signal]:
    """Every single signal by name, and the sum of two that is best on validation rows."""
    held_out, test = _whole(rows(found, _HELD_OUT)), _whole(rows(found, _TEST))
    if held_out is None or test is None:
        return {}
    known, asked = _sums(held_out, test)
    reached = {title: _auroc(values, held_out.inside) for title, values in known.items()}
    best = max(reached, key=lambda title: reached[title])
    titles = [title for title in known if "+" not in title or title == best]
    return {title: _signal(reached[title], asked[title], test.inside) for title in titles}


def _sums(held_out: Rows, test: Rows) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """All single signals and the sums of two of them, of both splits."""
    singles: tuple[dict[str, Floats], dict[str, Floats]] = ({}, {})
    for kind, signal in itertools.product(held_out.kinds, _SIGNALS):
        deviations = [
            float(reader[signal][held_out.inside].std()) or 1.0 for reader in held_out.kinds[kind]
        ]
        for part, of in zip((held_out, test), singles, strict=True):
            told = zip(part.kinds[kind], deviations, strict=True)
            of[f"{kind}_{signal}"] = np.mean([r[signal] / unit for r, unit in told], axis=0)
    deviation = {title: float(v[held_out.inside].std()) or 1.0 for title, v in singles[0].items()}
    for of in singles:
        for one, other in itertools.combinations([*of], 2):
            of[f"{one}+{other}"] = of[one] / deviation[one] + of[other] / deviation[other]
    return singles


def _signal(validation: float, values: Floats, inside: Flags) -> Signal:
    def fpr95(index: NDArray[np.int64]) -> float:
        part, kept = values[index], inside[index]
        return 100 * signals.fpr95(part[kept], part[~kept]) if _both(kept) else float("nan")

    count = len(values)
    return Signal(
        validation,
        signals.bootstrap(lambda index: _auroc(values[index], inside[index]), count),
        signals.bootstrap(fpr95, count),
    )


def _auroc(values: Floats, inside: Flags) -> float:
    """In percent; NaN where rows of one kind are missing."""
    found = signals.auroc(values[inside], values[~inside]) if _both(inside) else float("nan")
    return 100 * found


def _both(inside: Flags) -> bool:
    return bool(inside.any() and not inside.all())


def scope_figures(found: Found) -> dict[str, float]:
    """AUROC and FPR95 of every signal by name, and the validation AUROC of the one chosen."""
    made = compare_signals(found)
    told = {f"auroc/{name}": one.auroc.value for name, one in made.items()}
    told |= {f"fpr95/{name}": one.fpr95.value for name, one in made.items()}
    best = chosen(made)
    return told | {f"chosen/{best}": made[best].validation}


@dataclass(frozen=True)
class Choice:
    """The variance that comes of few validation rows out of scope.

    Attributes:
        outside: Validation rows out of scope.
        tried: Signals among which they choose.
        again: How often another draw of them makes the same choice, in percent.
        low: FPR95 on the test rows of what is chosen, 2.5th percentile of the draws.
        high: The 97.5th.
        best: The lowest FPR95 on the test rows of all signals: not to be had by a choice.
    """

    outside: int
    tried: int
    again: float
    low: float
    high: float
    best: float


def choice(found: Found, *, rounds: int = 200) -> Choice | None:
    """Resample the validation rows, choose by each sample and measure on the test rows."""
    held_out, test = _whole(rows(found, _HELD_OUT)), _whole(rows(found, _TEST))
    if held_out is None or test is None:
        return None
    known, asked = _sums(held_out, test)
    titles = [*known]
    fpr95 = {t: 100 * signals.fpr95(v[test.inside], v[~test.inside]) for t, v in asked.items()}
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(rounds):
        index = rng.integers(0, len(held_out.gold), len(held_out.gold))
        inside = held_out.inside[index]
        if not _both(inside):
            continue
        reached = [_auroc(known[title][index], inside) for title in titles]
        drawn.append(titles[int(np.argmax(reached))])
    if not drawn:
        return None
    usual = max(titles, key=lambda title: _auroc(known[title], held_out.inside))
    low, high = np.percentile([fpr95[title] for title in drawn], [2.5, 97.5])
    return Choice(
        int((~held_out.inside).sum()),
        len(titles),
        100 * drawn.count(usual) / len(drawn),
        float(low),
        float(high),
        min(fpr95.values()),
    )


@dataclass(frozen=True)
class Errors:
    """The errors of a classifier on the test rows in scope.

    Attributes:
        wrong: How often.
        by_all: Wrong by every single reader too.
        alike: Of those, where every reader says the same wrong label.
        second: Where the right label is the second likeliest.
        readers: How many there are.
        pairs: Two labels that are taken for each other, and how often; the most first.
    """

    wrong: int
    by_all: int
    alike: int
    second: int
    readers: int
    pairs: Sequence[tuple[tuple[str, str], int]]


def errors(found: Found, of: Classifier) -> Errors | None:
    """Count them."""
    if (test := rows(found, _TEST)) is None:
        return None
    gold, wrong = test.gold[test.inside], of.said != test.gold[test.inside]
    readers = [reader["logits"] for kind in test.kinds.values() for reader in kind]
    said = np.array([_labels(logits, test) for logits in readers])
    by_all = wrong & (said != gold).all(0)
    alike = by_all & (said == said[0]).all(0)
    whole = np.sum(readers, axis=0)[test.inside]
    for label in np.unique(test.gold[~test.inside]):
        whole[:, label] = -np.inf
    whole[np.arange(len(whole)), of.said] = -np.inf
    pairs = Counter(
        (min(a, b), max(a, b)) for a, b in zip(gold[wrong], of.said[wrong], strict=True)
    )
    return Errors(
        int(wrong.sum()),
        int(by_all.sum()),
        int(alike.sum()),
        int((whole.argmax(-1) == gold)[wrong].sum()),
        len(readers),
        [((test.labels[a], test.labels[b]), count) for (a, b), count in pairs.most_common()],
    )
