"""How a figure grows with the training rows, and how many rows a goal would take by that.

Between doublings a figure is taken to grow by the same number of points (a straight line over
log2 of the rows, least squares). That holds for a while and flattens in the end, so the rows that
it asks for are the fewest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean

import numpy as np

from studies.tasks import frozen
from studies.tasks.result import StudyResult
from studies.tasks.strategies import Alone, Strategy

ADAPTERS = tuple(
    Alone(Strategy.LORA, name, share=frozen.SHARES[0]) for name in ("sentiment", "duplicates")
)
Found = Mapping[str, StudyResult]


@dataclass(frozen=True)
class Curve:
    """Figures by share of the training rows, in percent."""

    name: str
    points: Mapping[float, float]

    @property
    def slope(self) -> float:
        """Points for each doubling of the rows."""
        slope, _ = np.polyfit(np.log2([*self.points]), [*self.points.values()], 1)
        return float(slope)

    def doublings(self, goal: float) -> float:
        """How often the rows would have to double; infinite where the slope prints as 0.0."""
        short = goal - self.points[1.0]
        return max(0.0, short / self.slope) if self.slope >= 0.05 else float("inf")


def adapter(found: Found, name: str) -> Curve | None:
    """The curve of a task's adapter."""
    studies = {one.share: one.study for one in ADAPTERS if one.name == name}
    studies[1.0] = Alone(Strategy.LORA, name).study
    if not set(studies.values()) <= found.keys():
        return None
    return Curve(name, {share: found[s].figures[name] for share, s in sorted(studies.items())})


def heads(found: Found, name: str) -> Curve | None:
    """The curve of a task's head on stored vectors, mean of the seeds."""
    if (part := found.get("frozen-curves")) is None:
        return None
    return Curve(
        name,
        {
            share: mean(part.figures[f"{name}_{share}_{seed}"] for seed in frozen.SEEDS)
            for share in frozen.SHARES
        },
    )
