"""What the fits of a head share: whom they report to, and how held-out rows judge them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import Cancelled
from verso_training.heads.confidence import macro_f1
from verso_training.heads.vectors import OnProgress, Progress, ShouldStop


@dataclass(frozen=True)
class Watch:
    """Where a fit reports to, and the part of the whole work that it is."""

    on_progress: OnProgress
    should_stop: ShouldStop
    steps: int
    done: list[int]

    def step(self, **figures: float) -> None:
        """Report that one more fit is done.

        Raises:
            Cancelled: the training was cancelled.
        """
        if self.should_stop():
            raise Cancelled("the training was cancelled")
        self.done[0] += 1
        self.on_progress(Progress(min(1.0, self.done[0] / self.steps), figures))


def score(logits: NDArray[np.floating], targets: NDArray[np.int64]) -> float:
    """Mean of accuracy and macro-F1."""
    chosen = logits.argmax(-1)
    return 0.5 * (float((chosen == targets).mean()) + macro_f1(chosen, targets))
