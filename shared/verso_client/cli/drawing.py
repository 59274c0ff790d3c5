"""Charts of lines and of bars as SVG 1.1, for reports that are read as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 170, 40, 56
_STEPS = 5
_ROW = 20
_VALUES, _BAR, _GAP = 60, 14, 8
_MOST_NAME, _LETTER = 400, 6.2
_ENDS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_COLOURS = ("#1f4fbf", "#d9822b", "#2b8a6e", "#8e4ec6", "#c2334d", "#6b7280")
_INK, _GRID = "#3c4048", "#e0e1e4"


@dataclass(frozen=True, slots=True)
class Line:
    """A named line of a chart, through the points of ``x`` and ``y`` in order."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def chart(title: str, lines: Sequence[Line], *, x_label: str, y_label: str) -> str:
    """Return a chart of lines over axes that begin at 0, with a legend.

    Args:
        title: what the chart shows; also read out.
        lines: at least one; values >= 0.
        x_label: name and unit of the horizontal axis.
        y_label: those of the vertical axis.
    """
    most_x = _end(value for line in lines for value in line.x)
    most_y = _end(value for line in lines for value in line.y)
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        return _LEFT + wide * x / most_x, _TOP + high * (1 - y / most_y)

    parts = _opening(title, left=_LEFT, height=_HEIGHT)
    for step in range(_STEPS + 1):
        share = step / _STEPS
        left, top = place(share * most_x, share * most_y)
        parts += [
            (
                f'<path d="M{left:.1f} {_TOP}V{_TOP + high}M{_LEFT} {top:.1f}H{_LEFT + wide}" '
                f'stroke="{_GRID}"/>'
            ),
            _text(left, _TOP + high + 18, f"{share * most_x:.3g}", anchor="middle"),
            _text(_LEFT - 8, top + 4, f"{share * most_y:.3g}", anchor="end"),
        ]
    parts += [
        _text(_LEFT + wide / 2, _HEIGHT - 12, x_label, anchor="middle"),
        (
            f'<g transform="translate(16 {_TOP + high / 2}) rotate(-90)">'
            f"{_text(0, 0, y_label, anchor='middle')}</g>"
        ),
    ]
    for number, line in enumerate(lines):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            "{:.1f},{:.1f}".format(*place(x, y)) for x, y in zip(line.x, line.y, strict=True)
        )
        row = _TOP + 10 + _ROW * number
        left = _LEFT + wide + 16
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<path d="M{left} {row}h18" stroke="{colour}" stroke-width="3"/>',
            _text(left + 24, row + 4, line.name),
        ]
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class Bars:
    """The bars of one row.

    Attributes:
        name: of the row.
        values: one for each series, >= 0.
        between: ends of an interval around the first value, or None.
    """

    name: str
    values: Sequence[float]
    between: tuple[float, float] | None = None


def bars(title: str, rows: Sequence[Bars], *, series: Sequence[str], label: str) -> str:
    """Return a chart of lying bars, each with its value, in groups of a row.

    Args:
        title: what the chart shows; also read out.
        rows: at least one, from the top.
        series: what the values of a row are; a legend names them if there are several.
        label: name and unit of the axis, which begins at 0.
    """
    ends = [value for row in rows for value in (*row.values, *(row.between or ()))]
    names = min(_MOST_NAME, 24 + _LETTER * max(len(row.name) for row in rows))
    scale = _Scale(names, _WIDTH - names - _VALUES, _end(ends))
    group = _BAR * len(series) + _GAP
    top = _TOP + (_ROW if len(series) > 1 else 0)
    high = group * len(rows)
    height = top + high + _BOTTOM
    parts = _opening(title, left=12, height=height)
    for number, name in enumerate(series if len(series) > 1 else ()):
        left = names + number * (scale.wide + _VALUES) / len(series)
        parts += [
            (
                f'<rect x="{left:.1f}" y="{_TOP - 5}" width="14" height="10" '
                f'fill="{_COLOURS[number % len(_COLOURS)]}"/>'
            ),
            _text(left + 20, _TOP + 4, name),
        ]
    for step in range(_STEPS + 1):
        value = scale.most * step / _STEPS
        parts += [
            f'<path d="M{scale.place(value):.1f} {top}v{high}" stroke="{_GRID}"/>',
            _text(scale.place(value), top + high + 18, f"{value:.3g}", anchor="middle"),
        ]
    parts.append(_text(names + scale.wide / 2, height - 12, label, anchor="middle"))
    for number, row in enumerate(rows):
        above = top + number * group + _GAP / 2
        parts.append(_text(names - 8, above + (group - _GAP) / 2 + 4, row.name, anchor="end"))
        parts += _row(row, scale, above)
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where a value is: ``wide`` pixels right of ``left`` for ``most``."""

    left: float
    wide: float
    most: float

    def place(self, value: float) -> float:
        return self.left + self.wide * value / self.most


def _row(row: Bars, scale: _Scale, above: float) -> list[str]:
    """Return the bars of a row with their values, and its interval."""
    parts = []
    for nth, value in enumerate(row.values):
        y = above + nth * _BAR
        colour = _COLOURS[nth % len(_COLOURS)]
        length = scale.place(value) - scale.left
        end = value if nth or row.between is None else max(value, *row.between)
        parts += [
            (
                f'<rect x="{scale.left}" y="{y + 1:.1f}" width="{length:.1f}" '
                f'height="{_BAR - 2}" fill="{colour}"/>'
            ),
            _text(scale.place(end) + 6, y + _BAR - 3.5, f"{value:,.4g}"),
        ]
    if row.between is not None:
        low, last = map(scale.place, row.between)
        y = above + _BAR / 2
        parts.append(
            f'<path d="M{low:.1f} {y:.1f}H{last:.1f}M{low:.1f} {y - 4:.1f}v8M{last:.1f} '
            f'{y - 4:.1f}v8" stroke="{_INK}"/>'
        )
    return parts


def _opening(title: str, *, left: float, height: float) -> list[str]:
    """Return the start of a drawing, with its title."""
    return [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img" font-family="sans-serif" font-size="12">'
        ),
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        _text(left, 22, title, size=14),
    ]


def _end(values: Iterable[float]) -> float:
    """Return a round number at or above all values, whose fifths are round as well."""
    most = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(end * power for end in _ENDS if end * power >= most * (1 - 1e-9))


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{_INK}" font-size="{size}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
