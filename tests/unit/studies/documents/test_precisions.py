"""How what is said of rows at two precisions is compared."""

from __future__ import annotations

import numpy as np
import pytest

from studies.documents import precisions
from studies.documents.precisions import BASE, OTHER
from verso_training.heads.confidence import Decided

GOLD = np.array([0, 0, 1, 1, 0, 1], np.int64)


def _said(chosen: list[int], sure: list[float], kept: list[int]) -> Decided:
    own = np.array(chosen, np.int64)
    return Decided(
        own, own == GOLD, np.array(sure, np.float32), {"0.1": np.array(kept, bool)}
    )  # fmt: skip


def test_a_row_that_one_precision_loses_is_told_in_every_figure() -> None:
    base = _said([0, 0, 1, 1, 1, 1], [0.9] * 6, [1, 1, 1, 1, 0, 1])
    other = _said([0, 1, 1, 1, 1, 1], [0.9, 0.7, 0.9, 0.9, 0.9, 0.9], [1, 1, 1, 0, 0, 0])
    found = precisions.compared({BASE: base, OTHER: other}, GOLD, np.arange(6))
    assert (found.rows, found.same) == (6, 5)
    assert found.moved == pytest.approx((0.0, 0.2))
    assert found.accuracy[BASE].value == pytest.approx(5 / 6)
    assert found.accuracy[OTHER].value == pytest.approx(4 / 6)
    assert found.accuracy_gain.value == pytest.approx(-1 / 6)
    assert found.accuracy_gain.high == 0.0  # in no draw does it gain
    assert found.macro_f1_gain.value < 0 < found.error[OTHER].value
    assert [one.value for one in found.accepted["0.1"][BASE]] == [pytest.approx(5 / 6), 0.0]
    assert [one.value for one in found.accepted["0.1"][OTHER]] == [0.5, pytest.approx(1 / 3)]
    told = precisions.sources_page({"worker": found})
    assert "-16.7 [" in told
    assert "| `worker`, int4 | 50.0 [11.8, 88.2]: 33.3 [0.8, 90.6] |" in told


def test_only_the_rows_of_a_source_count() -> None:
    base = _said([0, 0, 1, 1, 1, 1], [0.9] * 6, [1] * 6)
    found = precisions.compared({BASE: base, OTHER: base}, GOLD, np.array([0, 1, 2, 3]))
    assert (found.rows, found.same) == (4, 4)
    assert found.accuracy[OTHER].low == 1.0
    assert found.accuracy_gain.low == found.accuracy_gain.high == 0.0
