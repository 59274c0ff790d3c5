"""Which pictures do the lab reports carry, and do they say what their tables say?

Each picture is drawn from a table of the page that shows it, which a bench has printed:
``python tests/bench/pictures.py`` draws them all, ``--check`` compares them with what is there.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verso_client.cli.drawing import Bars, bars

RESEARCH = Path(__file__).parents[2] / "docs" / "research"
_NUMBER = re.compile(r"[\d,]+(?:\.\d+)?")


@dataclass(frozen=True)
class Picture:
    """A picture of some columns of a table.

    Attributes:
        name: of its file.
        page: that has the table.
        columns: what is drawn, by the titles of the columns.
        title: of the picture.
        label: of its axis.
        table: which of the tables that have the columns, from 0.
    """

    name: str
    page: str
    columns: tuple[str, ...]
    title: str
    label: str
    table: int = 0

    def draw(self) -> str:
        """Return the picture as SVG."""
        rows = [
            Bars(name, [_value(row[column]) for column in self.columns])
            for name, row in _tables(self)[self.table]
        ]
        return bars(self.title, rows, series=self.columns, label=self.label)


PICTURES = (
    Picture(
        "patches.svg",
        "storage.md",
        ("zstd+dict", "fitted"),
        "Patches against Zstandard with a dictionary of the same texts",
        "bytes a record, mean",
    ),
    Picture(
        "search-cacm.svg", "search-quality.md", ("nDCG@10",), "CACM, 52 questions", "nDCG@10, %"
    ),
    Picture(
        "search-scifact.svg",
        "search-quality.md",
        ("nDCG@10",),
        "SciFact, 300 questions",
        "nDCG@10, %",
        table=1,
    ),
)

Rows = list[tuple[str, dict[str, str]]]


def _tables(picture: Picture) -> list[Rows]:
    """Return the tables of a page that have the picture's columns: names of rows, and cells."""
    found = []
    for lines in _blocks((RESEARCH / picture.page).read_text(encoding="utf-8")):
        head, _, *body = ([cell.strip() for cell in one.strip("|").split("|")] for one in lines)
        if set(picture.columns) <= set(head):
            found.append([(_plain(row[0]), dict(zip(head, row, strict=True))) for row in body])
    return found


def _blocks(page: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            yield block
            block = []


def _plain(text: str) -> str:
    return re.sub(r"[*`]", "", text)


def _value(text: str) -> float:
    [number] = _NUMBER.findall(text)
    return float(number.replace(",", ""))


def main() -> int:
    """Draw or compare; return 1 if a picture differs from its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    differs = 0
    for picture in PICTURES:
        path, drawn = RESEARCH / picture.name, picture.draw()
        if check:
            differs += not path.is_file() or path.read_text(encoding="utf-8") != drawn
        else:
            path.write_text(drawn, encoding="utf-8")
    return int(differs > 0)


if __name__ == "__main__":
    sys.exit(main())
