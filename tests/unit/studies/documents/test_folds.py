"""Folds of rows that drift together: what is held out from what, and promised of the next one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from studies.documents.data import Document, Part
from studies.documents.fitting import fit
from studies.documents.folds import parts
from verso_training.heads.confidence import Outputs, calibrate, fold_thresholds, thresholds
from verso_training.heads.recipe import ClassifyConfig, Folds

_NAMES = st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=30)
_DIM = 8
_LABELS = ("line/down", "line/rare", "line/up")


@given(_NAMES)
def test_each_fold_is_held_out_once_from_all_others(folds: list[str | None]) -> None:
    found = list(parts(folds, Folds.OTHERS))
    held = [row for _, own in found for row in own]
    others = {fold for fold in folds if fold is not None}
    if len(others) > 1 or None in folds:
        assert sorted(held) == [row for row, fold in enumerate(folds) if fold is not None]
    for fitted, own in found:
        assert sorted(fitted + own) == list(range(len(folds)))
        assert len({folds[row] for row in own}) == 1


@given(_NAMES)
def test_a_fold_is_held_out_from_those_before_it(folds: list[str | None]) -> None:
    for fitted, own in parts(folds, Folds.EARLIER):
        (name,) = {folds[row] for row in own}
        assert name is not None
        assert all(folds[row] is None or str(folds[row]) < name for row in fitted)
        assert len(fitted) >= len(folds) / 3


def _drawn(
    rng: np.random.Generator, *, folds: int, rows: int = 40
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Folds whose errors differ: in one of five every tenth row is wrong, the surest as well."""
    values = rng.random((folds, rows))
    share = np.where(rng.random((folds, 1)) < 0.2, 0.15, 0.005)
    wrong = rng.random((folds, rows)) < share * 2 * (1.1 - values)
    names = np.repeat([f"fold {n:02}" for n in range(folds)], rows)
    return values.ravel(), ~wrong.ravel(), names


def test_fewer_than_nine_folds_promise_nothing() -> None:
    rng = np.random.default_rng(1)
    values, right, names = _drawn(rng, folds=8, rows=100)
    assert thresholds(values, right)
    assert fold_thresholds(values, right, names) == {}
    assert fold_thresholds(*_drawn(rng, folds=9, rows=100))


def test_the_next_fold_exceeds_a_rate_as_rarely_as_promised() -> None:
    rng = np.random.default_rng(2)
    exceeded = dict.fromkeys(("0.05", "0.1", "0.2"), 0)
    pooled = dict.fromkeys(exceeded, 0)
    rounds = 400
    for _ in range(rounds):
        values, right, names = _drawn(rng, folds=13)
        known = names != "fold 12"
        safe = fold_thresholds(values[known], right[known], names[known])
        loose = thresholds(values[known], right[known])
        for rate in exceeded:
            for limits, count in ((safe, exceeded), (loose, pooled)):
                taken = values[~known] >= limits.get(rate, np.inf)
                wrong = int((~right[~known][taken]).sum())
                count[rate] += wrong > max(1.0, float(rate) * taken.sum())
    for rate, often in exceeded.items():
        assert often / rounds <= 0.1 + 0.04, rate
    # Thresholds over all rows forget that rows of a fold are wrong together.
    assert pooled["0.05"] > 1.5 * exceeded["0.05"], (pooled, exceeded)


def test_a_fold_that_errs_makes_a_threshold_stricter() -> None:
    values = np.tile(np.linspace(0, 1, 50), 12)
    names = np.repeat([str(n) for n in range(12)], 50)
    right = np.ones(600, bool)
    before = fold_thresholds(values, right, names)["0.1"]
    right[(names == "7") & (values > 0.8) & (values < 0.95)] = False
    after = fold_thresholds(values, right, names)["0.1"]
    assert before < 0.8 < after


def _part(folds: dict[str, list[int]], rng: np.random.Generator) -> Part:
    """Documents of one chunk and one word each, both of which tell the label."""
    documents, targets, names = [], [], []
    for name, labels in folds.items():
        for label in labels:
            vector = np.eye(_DIM, dtype=np.float32)[label] + rng.normal(0, 0.05, _DIM)
            vector = (vector / np.linalg.norm(vector)).astype(np.float32)
            terms = np.array([3 + label], np.int64)
            documents.append(Document(vector[None], terms, np.ones(1, np.float32)))
            targets.append(label)
            names.append(name)
    return Part(documents, np.array(targets, np.int64), names)


@pytest.mark.parametrize("kind", Folds)
def test_layers_are_fitted_on_all_rows_and_judged_by_folds_held_out(kind: Folds) -> None:
    """A label of one fold alone is known to the head and was unknown when the fold was held out."""
    rng = np.random.default_rng(0)
    train = _part({"a": [0, 2] * 8, "b": [0, 2] * 8}, rng)
    validation = _part({"c": [0, 2] * 4 + [1] * 6}, rng)
    model, found = fit(
        ClassifyConfig(l2=(1e-3,), buckets=31, iterations=40, folds={"line": kind}),
        train=train,
        validation=validation,
        labels=_LABELS,
        seed=0,
        on_progress=lambda _: None,
        should_stop=lambda: False,
    )
    assert found is not None
    held = found.outputs
    assert held.folds is not None
    assert (found.rows >= 0).tolist() == [one == "c" for one in held.folds]
    own = found.rows[found.rows >= 0]
    assert validation.targets[own].tolist() == held.targets[found.rows >= 0].tolist()
    assert sorted(own) == list(range(len(validation)))
    assert set(held.folds) == ({"a", "b", "c"} if kind is Folds.OTHERS else {"b", "c"})
    # and three folds promise nothing of the next, of a head of one source as well
    assert calibrate(held, None, labels=_LABELS).sources["line"].conformal == {}
    rare = held.targets == 1
    assert rare.sum() == 6
    assert not held.right[rare].any()
    assert held.right[~rare].all()
    # features of training rows are among the references of confidence: they say nothing of these
    assert (np.abs(held.features).sum(-1) == 0).tolist() == (held.folds != "c").tolist()
    batch = [one.inputs() for one in validation.documents[-6:]]
    said = model(*(torch.from_numpy(np.stack([row[name] for row in batch])) for name in batch[0]))
    assert (said[0].argmax(-1) == 1).all()


def test_a_source_without_folds_is_fitted_beside_one_that_has_some() -> None:
    rng = np.random.default_rng(0)
    folds = {"a": [0, 1, 2, 3] * 8, "b": [0, 1, 2, 3] * 8}
    train, validation = _part(folds, rng), _part({"c": [0, 1, 2, 3] * 4}, rng)
    (one, _), (other, found) = (
        fit(
            ClassifyConfig(l2=(1e-3,), buckets=31, iterations=40, hidden=4, folds=of),
            train=train,
            validation=validation,
            labels=("line/down", "line/up", "text/long", "text/short"),
            seed=0,
            on_progress=lambda _: None,
            should_stop=lambda: False,
        )
        for of in ({}, {"line": Folds.OTHERS})
    )
    # its layers are those of a head without folds
    pairs = zip(one.readers[1].parameters(), other.readers[1].parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert found is not None
    held = found.outputs
    assert held.folds is not None
    text = held.targets >= 2
    # every row of the source with folds, and the validation rows of the other
    assert text.sum() == 8
    assert (~text).sum() == 40
    assert set(held.folds[text]) == {""}
    assert held.right.all()


def test_rows_taken_for_another_source_leave_that_source_its_calibration() -> None:
    """Rows with folds that are taken for a source without any do not make it one with folds."""
    rng = np.random.default_rng(0)
    labels = ("line/down", "line/up", "text/long", "text/short")
    targets = rng.integers(0, 4, 800)
    said = np.where(rng.random(800) < 0.05, (targets + 2) % 4, targets)
    logits = rng.normal(0, 0.5, (800, 4))
    logits[np.arange(800), said] += np.where(said == targets, 6.0, 2.0)
    folds = np.array([str(n % 12) if t < 2 else "" for n, t in enumerate(targets)])
    features = rng.normal(0, 1, (800, _DIM)).astype(np.float32)
    held = Outputs(logits.astype(np.float32), features, targets, folds=folds)
    assert ((said >= 2) & (folds != "")).sum() > 10
    found = calibrate(held, None, labels=labels).sources
    assert set(found) == {"line", "text"}
    bare = Outputs(held.logits, features, targets)
    assert found["text"] == calibrate(bare, None, labels=labels).sources["text"]
