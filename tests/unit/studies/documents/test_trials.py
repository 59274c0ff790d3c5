"""Trials are judged by the same validation rows, whatever else each of them was not fitted on."""

import numpy as np

from studies.documents import baseline, trials
from studies.documents.fitting import HeldOut
from verso_training.heads.confidence import Outputs
from verso_training.heads.rows import RowSplit

_LABELS = ("a/down", "a/up", "b/long", "b/short")


def _said(chosen: list[int], targets: list[int], rows: list[int]) -> HeldOut:
    logits = np.eye(len(_LABELS), dtype=np.float32)[chosen]
    features = np.zeros((len(chosen), 2), np.float32)
    return HeldOut(Outputs(logits, features, np.array(targets)), np.array(rows))


def test_rows_that_one_trial_was_fitted_on_count_for_none() -> None:
    targets = [0, 1, 0, 1, 2, 3]
    first = _said([0, 1, 1, 1, 2, 2], targets, [0, 1, 2, 3, 4, 5])
    # of row 3 this one says nothing; of a training row it says something wrong; another order
    other = _said([3, 2, 0, 1, 0, 3], [3, 2, 0, 1, 0, 2], [5, 4, 2, 1, 0, -1])
    found = trials.compared({"first": first, "other": other}, _LABELS)
    assert found["a"]["first"].rows == 3
    assert round(found["a"]["first"].accuracy.value) == 67
    assert found["a"]["other"].accuracy.value == 100
    assert found["a"]["other"].alone == (0, 1)
    assert found["b"]["other"].alone == (0, 1)
    assert round(found["b"]["other"].gain.value) == 50
    assert found["a"]["first"].gain.value == 0


def test_the_page_tells_how_many_texts_have_more_chunks_than_are_read() -> None:
    first = _said([0, 2], [0, 2], [0, 1])
    counts = {"logs": {RowSplit.TEST: [1, 5, 9, 3]}}
    told = trials.page(trials.compared({"first": first}, _LABELS), counts, [4, 8])
    assert "| `logs` | test | 4 | 4 | 9 | 2 | 1 |" in told
    assert "| `a` | first | 1 | 100.0" in told


def test_a_head_is_compared_with_a_baseline_on_the_same_rows() -> None:
    targets = np.array([0, 1, 0, 1] * 25)
    head = np.where(np.arange(100) < 90, targets, 1 - targets)
    found = baseline.compared(np.zeros(100, np.int64), head, targets)
    assert (found.baseline[0].value, found.head[0].value) == (50, 90)
    assert found.gain[0].low < found.gain[0].value == 40 < found.gain[0].high
    assert found.gain[1].value > 50
    assert "| `a` | 100 | 50.0 [" in baseline.page({"a": found})
