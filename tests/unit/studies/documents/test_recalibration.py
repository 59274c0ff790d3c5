"""What is left of a calibration error that is made: a head that is not sure enough."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from studies.documents import recalibration, served
from verso_core import heads
from verso_core.heads import Calibration, Signal, SignalName, Source
from verso_training.heads.confidence import Outputs

LABELS = ("gateway/down", "gateway/slow", "worker/full", "worker/lost")


def _outputs(count: int, *, seed: int) -> Outputs:
    """Return rows of both sources whose softmax is the true distribution of their labels."""
    rng = np.random.default_rng(seed)
    logits = np.full((count, 4), -30.0, np.float32)
    targets = np.zeros(count, np.int64)
    for row in range(count):
        first = 2 * (row % 2)
        odds = rng.normal() * 3
        logits[row, first : first + 2] = odds, 0.0
        targets[row] = first + (rng.random() > 1 / (1 + np.exp(-odds)))
    return Outputs(logits, np.ones((count, 1), np.float32), targets)


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve a head whose confidence is that of its softmax, moved down by two in log odds."""
    exact = {SignalName.CALIBRATED: Signal(scale=8.0, offset=-4.0)}
    off = Signal(scale=8.0, offset=-6.0)
    calibration = Calibration(
        signals=exact,
        accept_by=SignalName.CALIBRATED,
        conformal={"0.1": 0.9},
        sources={
            name: Source(signal=off, conformal={"0.1": 0.9}) for name in ("gateway", "worker")
        },
    )
    head = SimpleNamespace(labels=LABELS, calibration=calibration)
    monkeypatch.setattr(heads, "load", lambda _: SimpleNamespace(head=head))
    monkeypatch.setattr(served, "statistics", lambda _: None)


@pytest.mark.usefixtures("unsure")
def test_one_number_mends_a_head_that_is_not_sure_enough() -> None:
    found = recalibration.study(
        Path("head"), _outputs(1200, seed=1), validation=_outputs(1200, seed=2), checked=(60,)
    )
    assert found.keys() == {"gateway", "worker"}
    for one in found.values():
        assert one.rows == 600
        assert one.gap.high < -0.05
        assert one.error.low > one.chance[1]
        for mended in (one.one_number, one.two_numbers, one.all_validation):
            assert mended.value < 0.5 * one.error.value
        error, chance, gap = one.labels[60]
        assert chance < error.value < one.error.value
        assert abs(gap.value) < 0.03
        assert abs(one.more_rows.value) < 0.02
        accuracy, macro_f1 = one.told
        assert 0.75 < accuracy.value < 0.9
        assert macro_f1.value == pytest.approx(accuracy.value, abs=0.02)
    told = recalibration.page(found)
    assert "| `gateway` | 600 |" in told
    assert "| `gateway` | 60 | 540 |" in told
