"""Figures of a study, kept part by part: one that is stopped goes on behind its last part."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verso_training.heads.shipping import machine
from verso_training.heads.signals import Interval, bootstrap

Figures = Mapping[str, float]
Parts = Mapping[str, Figures]
"""Figures by part, in the order in which a study names its parts."""


@dataclass(frozen=True)
class Kept:
    """The figures of one study, a file for each part."""

    folder: Path

    def of(self, part: str, make: Callable[[], Figures]) -> Figures:
        """Return the figures of a part; they are made if no earlier run has."""
        path = self.folder / f"{part}.json"
        if not path.exists():
            values = {
                "figures": dict(make()),
                "machine": machine(),
                "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
            }
            self.folder.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".new")
            draft.write_text(json.dumps(values, indent=1), encoding="utf-8")
            draft.replace(path)
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["figures"]
        return found


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table whose first column is text and whose others are numbers."""
    lines = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def ends(key: str, found: Interval) -> dict[str, float]:
    """Return a figure and the ends of its interval, as ``with_interval`` reads them."""
    return {key: found.value, f"{key}/low": found.low, f"{key}/high": found.high}


def mean(key: str, values: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Return the mean of one value a text, with its interval over the texts."""
    rows = np.asarray(values, np.float64)
    return ends(key, bootstrap(lambda at: float(rows[at].mean()), len(rows)))


def rate(
    key: str, above: Sequence[float] | NDArray[np.float64], below: NDArray[np.int64]
) -> dict[str, float]:
    """Return the ratio of two sums over texts, as bits a byte, with its interval over them."""
    rows = np.asarray(above, np.float64)
    found = bootstrap(lambda at: float(rows[at].sum() / below[at].sum()), len(rows))
    return ends(key, found)


def with_interval(figures: Figures, key: str, *, digits: int = 1) -> str:
    """Return a figure with its interval, which stands under ``key/low`` and ``key/high``."""
    value, low, high = (figures[name] for name in (key, f"{key}/low", f"{key}/high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
