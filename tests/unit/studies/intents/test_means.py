"""What readers of intents say together, and what is counted of their errors and choices."""

import numpy as np
import pytest
from numpy.typing import NDArray

from studies.intents import means, tables
from studies.tasks import adapters
from studies.tasks.adapters import CLINC
from studies.tasks.result import StudyResult
from verso_training.heads.rows import RowSplit

OUTSIDE = 2
GOLD = np.array([0, 1, 0, 1] * 10 + [OUTSIDE] * 10)
INSIDE = GOLD != OUTSIDE
SIGNALS = ("softmax", "energy", "mahalanobis", "knn", "label")


def reader(name: str, *, wrong: tuple[int, ...], split: RowSplit) -> dict[str, NDArray[np.generic]]:
    """Right answers but for ``wrong`` rows; "out of scope" is its likeliest label everywhere."""
    logits = np.zeros((len(GOLD), 3))
    logits[np.arange(len(GOLD)), np.minimum(GOLD, 1)] = 1.0
    for row in wrong:
        logits[row] = 0.0
        logits[row, 1 - GOLD[row]] = 0.9
    logits[:, OUTSIDE] = 5.0
    arrays: dict[str, NDArray[np.generic]] = {f"{name}_{split}": logits}
    rng = np.random.default_rng(0)
    for signal in SIGNALS:
        arrays[f"{name}:{signal}_{split}"] = rng.normal(size=len(GOLD))
    told = INSIDE * 1.0 if split is RowSplit.VALIDATION else INSIDE * 1.0 + 0.9 * rng.random(50)
    arrays[f"{name}:energy_{split}"] = told + 0.01 * rng.random(50)
    return arrays


def found(*, second: tuple[int, ...]) -> dict[str, StudyResult]:
    """Two adapters and three heads; the first adapter errs on rows 0 and 1, the heads on 3."""
    parts: dict[str, dict[str, NDArray[np.generic]]] = {}
    known: dict[str, NDArray[np.generic]] = {"labels": np.array(["card", "rate", "oos"])}
    for split in (RowSplit.VALIDATION, RowSplit.TEST):
        known |= {f"gold_{split}": GOLD, f"inside_{split}": INSIDE}
        parts.setdefault("first", {}).update(reader("adapter", wrong=(0, 1, 3), split=split))
        parts.setdefault("other", {}).update(reader("adapter", wrong=second, split=split))
        for seed in adapters.SEEDS:
            parts["first"] |= reader(f"vector_{seed}", wrong=(3,), split=split)
    other = means.ADAPTERS[1].study
    return {
        CLINC.study: StudyResult(CLINC.study, {}, known | parts["first"]),
        other: StudyResult(other, {}, known | parts["other"]),
    }


def test_readers_that_err_elsewhere_are_right_together_and_scope_is_no_answer() -> None:
    made = means.classifiers(found(second=()))
    assert {title: one.test.value for title, one in made.items()} == {
        "adapter": 92.5,
        "adapter and head on vectors": 97.5,
        "2 adapters": 100.0,
        "2 adapters and 3 heads on vectors": 97.5,
    }
    assert means.chosen(made) == "2 adapters"
    assert means.classifiers({}) == {}


def test_errors_tell_what_no_seed_would_mend() -> None:
    said = found(second=(3, 4))
    made = means.classifiers(said)
    counted = means.errors(said, made["2 adapters"])
    assert counted is not None
    # Rows 0 and 1 are tied between the adapters; 3 is wrong by all of them.
    assert (counted.by_all, counted.alike, counted.readers) == (1, 1, 5)
    assert counted.second == counted.wrong
    assert dict(counted.pairs) == {("card", "rate"): counted.wrong}


def test_the_signal_is_the_one_that_is_best_on_validation_rows() -> None:
    said = found(second=())
    made = means.compare_signals(said)
    best = made[means.chosen(made)]
    assert best.validation == 100.0
    assert len([title for title in made if "+" in title]) <= 1
    assert best.auroc.low <= best.auroc.value <= best.auroc.high
    left = means.choice(said, rounds=20)
    assert left is not None
    assert (left.outside, left.tried) == (10, 10 + 45)
    assert left.best <= left.low <= left.high
    assert 0 <= left.again <= 100


def test_a_study_that_kept_no_rows_tells_its_own_figures() -> None:
    figures = {"accuracy_both": 96.2, "validation_both": 97.2, "accuracy_adapter": 95.9}
    figures |= {f"accuracy_vector_{seed}": 95.5 for seed in adapters.SEEDS}
    figures |= means.scope_figures(found(second=()))
    told = {CLINC.study: StudyResult(CLINC.study, figures, {})}
    [best] = (name.removeprefix("chosen/") for name in figures if name.startswith("chosen/"))
    assert tables.reached(told) == {
        "intents": 96.2,
        "scope_auroc": figures[f"auroc/{best}"],
        "scope_fpr95": figures[f"fpr95/{best}"],
    }
    assert "chosen on validation" in tables.section(told)
    # 0.3 % of 4,500, and sqrt(96.5 * 3.5 / 4500).
    assert "14 more right answers of 4,500 would make 96.5 %" in tables.causes(told)
    assert "by 0.27" in tables.causes(told)


def test_a_curve_needs_all_its_studies() -> None:
    figures = {CLINC.study: 96.0} | {
        one.study: 96.0 + 2.0 * float(np.log2(one.share))
        for one in adapters.MORE
        if one.share < 1.0
    }
    studies = {
        name: StudyResult(name, {"accuracy_adapter": value}, {}) for name, value in figures.items()
    }
    made = tables.adapter_curve(studies)
    assert made is not None
    assert made.slope == pytest.approx(2.0)
    assert tables.adapter_curve({CLINC.study: studies[CLINC.study]}) is None


def test_the_causes_of_a_missed_goal_are_told() -> None:
    said = found(second=(3, 4))
    said = {
        name: StudyResult(name, {"accuracy_adapter": 95.0}, o.arrays) for name, o in said.items()
    }
    told = tables.causes(said)
    assert "The adapter by seed: 95.0, 95.0." in told
    assert "`card` and `rate`" in told.replace("\n", " ")
    assert tables.causes({}) == ""
