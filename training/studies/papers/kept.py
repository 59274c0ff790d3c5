"""Figures of a study, kept part by part: one that is stopped goes on behind its last part."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from verso_training.heads.shipping import machine
from verso_training.heads.signals import Interval

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


def ends(key: str, found: Interval) -> Figures:
    """Return a figure and both ends of its interval, as ``with_interval`` reads them."""
    return {key: found.value, f"{key}/low": found.low, f"{key}/high": found.high}


def with_interval(figures: Figures, key: str, *, digits: int = 1) -> str:
    """Return a figure with its interval, which stands under ``key/low`` and ``key/high``."""
    value, low, high = (figures[name] for name in (key, f"{key}/low", f"{key}/high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
