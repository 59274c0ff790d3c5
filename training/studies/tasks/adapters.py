"""Which adapters are trained on the intents of CLINC150: by seed, rows and depth."""

from __future__ import annotations

from dataclasses import dataclass, replace

SEEDS = (0, 1, 2)
SHARES = (0.25, 0.5)
"""Of the training rows, beside all of them."""


@dataclass(frozen=True)
class Adapter:
    """One training of an adapter.

    Attributes:
        name: Of the set.
        seed: For the order of rows and for weights that start at random.
        share: Of the training rows, the first in an order that is shuffled once.
        half: On every second layer of the encoder.
    """

    name: str
    seed: int = 0
    share: float = 1.0
    half: bool = False

    @property
    def study(self) -> str:
        """Its name: what differs from the usual stands behind it."""
        odd = (
            f"seed-{self.seed}" if self.seed else "",
            f"rows-{self.share:.0%}".removesuffix("%") if self.share < 1.0 else "",
            "half" if self.half else "",
        )
        return "-".join([self.name, *filter(None, odd)])


CLINC = Adapter("intent_clinc150")
HALF = replace(CLINC, half=True)
MORE = (
    *(replace(CLINC, seed=seed) for seed in SEEDS[1:]),
    *(replace(CLINC, share=share) for share in SHARES),
    HALF,
)
"""Adapters of CLINC150 beside the first."""
