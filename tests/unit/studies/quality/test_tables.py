"""Figures read back from a page."""

import pytest

from studies.quality.tables import figure

PAGE = """# Page

## One

| set | by | F1 | rows |
|---|---|---:|---:|
| a, by time | words | 60.2 | 1,204 |
|  | **`head`** | **32.0** | none |
| b | words | 7 | |

## Two

| by | F1 |
|---|---|
| words | 1.5 |
"""


@pytest.mark.parametrize(
    ("heading", "row", "column", "found"),
    [
        ("## One", ("a", "words"), "F1", 60.2),
        ("## One", ("a", "head"), "F1", 32.0),
        ("## One", ("b", "words"), "F1", 7.0),
        ("## One", ("a", "words"), "rows", 1204.0),
        ("## One", ("a", "head"), "rows", None),
        ("## One", ("b", "head"), "F1", None),
        ("## One", ("a",), "recall", None),
        ("## Two", ("words",), "F1", 1.5),
        ("## Three", ("words",), "F1", None),
        ("# Page", ("words",), "F1", 1.5),
    ],
)
def test_a_cell_is_found_by_heading_row_and_column(
    heading: str, row: tuple[str, ...], column: str, found: float | None
) -> None:
    assert figure(PAGE, heading, row=row, column=column) == found
