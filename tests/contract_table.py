"""The table of job kinds in ``docs/reference/ledger.md``, generated from the contracts.

``python tests/contract_table.py docs/reference/ledger.md`` writes it between two markers; with
``--check`` it changes nothing and fails where the page is out of date.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from verso_core.jobs.heads.report import HeadReport
from verso_core.jobs.ingest import Embedded
from verso_core.jobs.job import Kind
from verso_core.jobs.models import Item, ItemResult, OpenModel, RecordText, Text
from verso_core.jobs.reconstruct import Guess
from verso_core.jobs.slices import CONTRACTS

BEGIN = "<!-- begin: python tests/contract_table.py -->"
END = "<!-- end -->"

_SECOND_RESULT: dict[Kind, type[ItemResult]] = {
    Kind.RECONSTRUCT: Guess,
    Kind.HEADS: HeadReport,
}
"""Results of kinds that have two; the contract names the first."""


def table() -> str:
    """Return the table: what params, items and result items of each kind hold in a frame."""
    rows = ["| kind | params | item | result item |", "|---|---|---|---|"]
    for kind, contract in CONTRACTS.items():
        params = _listed(f"`{name}`" for name in contract.params.model_fields)
        results = _listed(_result_fields(contract.result))
        if kind in _SECOND_RESULT:
            results += "; or " + _listed(_result_fields(_SECOND_RESULT[kind]))
        rows.append(f"| `{kind}` | {params} | {_item(contract.item)} | {results} |")
    return "\n".join(rows)


def updated(page: str) -> str:
    """Return a page with the table between its markers.

    Raises:
        ValueError: the page does not have both markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"expected a page with {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n\n{table()}\n\n{end}{after}"


def _item(item: type[Item]) -> str:
    names = [one.name for one in dataclasses.fields(item)]
    shown = [f"`{name}`" for name in names if name != item.BLOB]
    return _listed([*shown, *(["blob"] if item.BLOB else [])]) or "one, empty"


def _result_fields(result: type[ItemResult]) -> Iterator[str]:
    """Yield the fields of a result item; its error stands in its place where it failed."""
    return _frame_fields(result, hidden={"error"})


def _frame_fields(model: type[OpenModel], *, hidden: Iterable[str] = ()) -> Iterator[str]:
    """Yield a model's fields in a frame; its text or bytes are a blob."""
    left_out = set(hidden)
    blob = issubclass(model, Text)
    if blob:
        left_out |= {"text", "text_base64"}
    if issubclass(model, RecordText):
        left_out.add("document")  # a frame has it as id
    if issubclass(model, Embedded):
        left_out.add("embedding")  # the blob, as the API answers it
    for name, field in model.model_fields.items():
        if field.exclude:
            blob = True
        elif name not in left_out:
            parts = [_listed(_frame_fields(one)) for one in _models_in(field.annotation)]
            yield f"`{name}`" + "".join(f" ({one})" for one in parts)
    if blob:
        yield "blob"


def _models_in(annotation: Any) -> Iterator[type[OpenModel]]:
    """Yield the models that a field's type contains."""
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)
    if isinstance(annotation, type) and issubclass(annotation, OpenModel):
        yield annotation


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def main() -> None:
    """Write the table into a page, or check that the page has it."""
    parser = argparse.ArgumentParser(prog="python tests/contract_table.py")
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    page = asked.page.read_text(encoding="utf-8")
    wanted = updated(page)
    if not asked.check:
        asked.page.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        sys.exit(f"{asked.page} is out of date: run python tests/contract_table.py")


if __name__ == "__main__":
    main()
