"""Intervals of printed figures, from a figure and the number of its rows.

For tables of minBERT's three tasks whose predictions were not kept, so that no rows can be drawn:

1. an accuracy has Wilson's interval (Wilson 1927);
2. a correlation r of n pairs has Fisher's, tanh(artanh r +- 1.96 / sqrt(n - 3)) (Fisher 1921);
3. a mean's parts are independent: with half widths w_i it has sqrt(sum of w_i^2) / count.

    python -m studies.papers.multi_task.approximate PAGE HEADING
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from scipy.stats import binomtest

from studies.papers.kept import ends, table, with_interval
from verso_training.heads.signals import Interval

_WIDTH = 1.96
"""Standard errors on either side, 95 % of a normal distribution."""


def of_accuracy(percent: float, rows: int) -> Interval:
    """Return an accuracy with its interval, in percent."""
    found = binomtest(round(rows * percent / 100), rows).proportion_ci(method="wilson")
    return Interval(percent, 100 * found.low, 100 * found.high)


def of_correlation(percent: float, rows: int) -> Interval:
    """Return a correlation with its interval, times 100."""
    middle, margin = math.atanh(percent / 100), _WIDTH / math.sqrt(rows - 3)
    low, high = (100 * math.tanh(middle + side * margin) for side in (-1, 1))
    return Interval(percent, low, high)


def of_mean(percent: float, parts: Sequence[Interval]) -> Interval:
    """Return the mean of independent figures with its interval."""
    margin = math.hypot(*((part.high - part.low) / 2 for part in parts)) / len(parts)
    return Interval(percent, percent - margin, percent + margin)


COLUMNS: Mapping[str, Callable[[float], Interval]] = {
    "SST-5": partial(of_accuracy, rows=1101),
    "Quora": partial(of_accuracy, rows=1983),
    "STS-B": partial(of_correlation, rows=1500),
}
"""The reported rows: dev, test pairs and dev."""


def told(page: str, heading: str) -> str:
    """Return the table below a heading with intervals, those columns that are known."""
    part = re.split(r"^#+ ", page.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    # A row in italics is another's, on other rows.
    lines = [line for line in part.splitlines() if re.match(r"\|(?! \*)", line)]
    columns, _, *rows = ([cell.strip("* ") for cell in line[1:-1].split("|")] for line in lines)
    made = []
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        # An interval that a cell has already is left out.
        figures = [re.match(r"\d+\.\d", cells[name]) for name in (*COLUMNS, "mean")]
        if len(known := [float(one[0]) for one in figures if one]) > len(COLUMNS):
            made.append([row[0], *_intervals(known)])
    return table([columns[0], *COLUMNS, "mean"], made)


def _intervals(figures: Sequence[float]) -> list[str]:
    *parts, mean = figures
    found = [of(part) for of, part in zip(COLUMNS.values(), parts, strict=True)]
    return [with_interval(ends("value", one), "value") for one in (*found, of_mean(mean, found))]


if __name__ == "__main__":
    page, heading = sys.argv[1:]
    print(told(Path(page).read_text(encoding="utf-8"), heading))  # noqa: T201 - its output
