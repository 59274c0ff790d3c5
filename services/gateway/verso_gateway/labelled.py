"""Labelled rows as they come in: JSON, JSON lines or CSV, each row judged where it stands.

Training on rows of which some were left out would be training on other data than was sent, so one
row that cannot be read refuses the request, with its place.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verso_core.errors import RequestInvalid, TrainingDataInvalid
from verso_core.training import Labelled
from verso_gateway import bodies

CSV = "text/csv"
_SPLITS = ("train", "validation", "test")
_MAX_LABEL = 256


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the fields that hold the text and the label."""

    text: str = "text"
    label: str = "label"


def from_lines(data: bytes, columns: Columns) -> list[Labelled]:
    """Read JSON lines, an object each.

    Raises:
        TrainingDataInvalid: a line is no such object; the detail says which.
    """
    rows = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"line {number}"
        try:
            value = bodies.parse(line)
        except RequestInvalid as error:
            raise TrainingDataInvalid(f"{place}: {error.detail}") from error
        if not isinstance(value, dict):
            raise TrainingDataInvalid(f"{place}: expected an object, got {type(value).__name__}")
        rows.append(_row(value, columns, place=place))
    return rows


def from_csv(data: bytes, columns: Columns) -> list[Labelled]:
    """Read CSV (RFC 4180) with a header line.

    Raises:
        TrainingDataInvalid: it is none, or lacks a column; the detail says which line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise TrainingDataInvalid(f"expected UTF-8, got byte {data[exc.start]:#04x}") from exc
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows = []
    for number, fields in _records(reader):
        if number == 1:
            names = fields
            for name in (columns.text, columns.label):
                if names.count(name) != 1:
                    raise TrainingDataInvalid(f"expected one column {name!r}, got {names}")
            continue
        if len(fields) != len(names):
            raise TrainingDataInvalid(
                f"record {number}: expected {len(names)} fields, got {len(fields)}"
            )
        value = {name: field for name, field in zip(names, fields, strict=True) if field != ""}
        rows.append(_row(value, columns, place=f"record {number}"))
    return rows


def _records(reader: Any) -> Iterator[tuple[int, list[str]]]:
    number = 0
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as exc:
            raise TrainingDataInvalid(f"record {number + 1}: malformed CSV: {exc}") from exc
        if fields:  # an empty line is no record
            number += 1
            yield number, fields


def _row(value: dict[str, Any], columns: Columns, *, place: str) -> Labelled:
    text = _string(value, columns.text, place=place)
    label = _string(value, columns.label, place=place)
    if label.lower() == "nan":
        raise TrainingDataInvalid(f"{place}: expected a label, got {label}")
    if len(label) > _MAX_LABEL:
        raise TrainingDataInvalid(
            f"{place}: expected a label of <= {_MAX_LABEL} characters, got {len(label)}"
        )
    split = value.get("split")
    if split is not None and split not in _SPLITS:
        raise TrainingDataInvalid(f"{place}: expected a split of {_SPLITS}, got {split!a}")
    return Labelled(text, label, split)


def _string(value: dict[str, Any], name: str, *, place: str) -> str:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, str | int):
        got = "nothing" if found is None else type(found).__name__
        raise TrainingDataInvalid(f"{place}: expected a string as {name!r}, got {got}")
    text = str(found)
    if not text.strip() or not bodies.encodable(text):
        raise TrainingDataInvalid(f"{place}: expected text that is not empty as {name!r}")
    return text


def of_json(rows: Any) -> list[Labelled]:
    """Check the rows of a JSON body.

    Raises:
        TrainingDataInvalid: one of them is no row; the detail says which.
    """
    if not isinstance(rows, list):
        raise TrainingDataInvalid(f"/source/rows: expected an array, got {type(rows).__name__}")
    found = []
    for number, value in enumerate(rows):
        place = f"row {number}"
        if not isinstance(value, dict):
            raise TrainingDataInvalid(f"{place}: expected an object, got {type(value).__name__}")
        if extra := value.keys() - {"text", "label", "split"}:
            raise TrainingDataInvalid(f"{place}: expected text, label, split; got {min(extra)!a}")
        found.append(_row(value, Columns(), place=place))
    return found
