"""The disturbance under which a payload must still read: what another machine might compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verso_core.manifest import Codec

_SEED = 20_250_401
_BANK = 4  # times the vocabulary


class Noise:
    """Uniform noise of up to half the codec's margins, either way.

    It is drawn once and used from a new place each time: drawing it anew for every logit would cost
    as much as the decoder. Each thread has its own.
    """

    def __init__(self, codec: Codec) -> None:
        self._random = np.random.default_rng(_SEED)
        unit = self._random.random(_BANK * codec.vocab, dtype=np.float32) - np.float32(0.5)
        self._logits = unit * np.float32(codec.epsilon)
        self._confidence = unit * np.float32(codec.confidence_epsilon)

    def add(self, logits: NDArray[np.float32], confidence: NDArray[np.float32]) -> None:
        """Disturb one row, in place. Shape: (V,) and (1,)."""
        start = int(self._random.integers(self._logits.size - logits.size + 1))
        logits += self._logits[start : start + logits.size]
        confidence += self._confidence[start : start + 1]
