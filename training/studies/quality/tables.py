"""Figures read back from the tables of a page.

A page is written by the command that measured its figures; another page that cites them reads
them there, so that both say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def figure(page: str, heading: str, *, row: tuple[str, ...], column: str) -> float | None:
    """A cell of the tables below a heading, as a number.

    Args:
        page: Markdown.
        heading: With its marks, such as "## CACM"; the tables end at the next of its rank.
        row: What cells of the row begin with, from the left, without marks; an empty first cell is
            that above.
        column: Title of the column.

    Returns:
        None where there is no such cell, or no number in it.
    """
    for cells, titles in _rows(_below(page, heading)):
        if column in titles and _begin(cells, row):
            found = re.search(r"-?\d[\d,]*\.?\d*", cells[titles.index(column)])
            return float(found.group().replace(",", "")) if found else None
    return None


def _below(page: str, heading: str) -> str:
    rank = len(heading) - len(heading.lstrip("#"))
    start = re.search(rf"^{re.escape(heading)}.*$", page, re.MULTILINE)
    if start is None:
        return ""
    rest = page[start.end() :]
    end = re.search(rf"^#{{1,{rank}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def _rows(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each row of each table, with the titles of its table."""
    titles: list[str] = []
    above = ""
    for line in text.splitlines():
        if not line.startswith("|"):
            titles, above = [], ""
            continue
        cells = [cell.replace("`", "").strip(" *") for cell in line.strip().strip("|").split("|")]
        if not titles:
            titles = cells
        elif set(line) - set("|-: "):
            above = cells[0] = cells[0] or above
            yield cells, titles


def _begin(cells: list[str], row: tuple[str, ...]) -> bool:
    return len(row) <= len(cells) and all(
        cell.startswith(wanted) for cell, wanted in zip(cells, row, strict=False)
    )
