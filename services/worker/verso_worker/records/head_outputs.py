"""What heads give, on both sides of the engine's socket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Classified:
    """Outputs of a classifier. Shapes: (n, C) and (n, F); features None where it has none."""

    logits: NDArray[np.float32]
    features: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a context: characters [start, end), and its score."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """The best spans of one context, best first, no two of which overlap, and its null score."""

    spans: list[Span]
    null_score: float
