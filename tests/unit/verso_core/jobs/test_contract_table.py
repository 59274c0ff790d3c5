"""The table of job kinds in the ledger's page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract_table import BEGIN, END, table, updated

from verso_core.jobs import Kind

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "ledger.md"


def test_the_page_has_the_table_of_the_contracts() -> None:
    """Where it does not: python tests/contract_table.py docs/reference/ledger.md."""
    page = PAGE.read_text(encoding="utf-8")
    assert updated(page) == page


def test_every_kind_has_a_row() -> None:
    rows = table().splitlines()[2:]
    assert sorted(row.split("`")[1] for row in rows) == sorted(Kind)


def test_only_what_is_between_the_markers_changes() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert updated(page) == f"before\n{BEGIN}\n\n{table()}\n\n{END}\nafter\n"


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}"])
def test_a_page_without_both_markers_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="expected a page with"):
        updated(page)
