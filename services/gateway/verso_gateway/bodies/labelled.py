"""Labelled rows, scored pairs and groups: JSON, JSON lines or CSV, each judged where it is.

Training on rows of which some were left out would be training on other data than was sent, so one
row that cannot be read refuses the request, with its position.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from verso_core.errors import RequestInvalid, TrainingDataInvalid
from verso_core.jobs.train import MAX_PASSAGES, MAX_ROWS_BYTES, SPLITS, Grouped, Labelled, Scored
from verso_gateway.bodies import reading

CSV = "text/csv"
csv.field_size_limit(MAX_ROWS_BYTES)  # Python's own is 131,072 characters; of the process
_MAX_LABEL = 256
_Row = TypeVar("_Row")
Make = Callable[[dict[str, Any], str], _Row]
"""Makes a row of an object; the string is its position, for messages."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the fields that hold the text and the label."""

    text: str = "text"
    label: str = "label"

    def row(self, value: dict[str, Any], where: str) -> Labelled:
        """Make a labelled row.

        Raises:
            TrainingDataInvalid: the object is none.
        """
        text = _string(value, self.text, where=where)
        label = _string(value, self.label, where=where)
        if label.lower() == "nan":
            raise TrainingDataInvalid(f"{where}: expected a label, got {label}")
        if len(label) > _MAX_LABEL:
            raise TrainingDataInvalid(
                f"{where}: expected a label of <= {_MAX_LABEL} characters, got {len(label)}"
            )
        return Labelled(text, label, _split(value, where=where))


def pair(value: dict[str, Any], where: str) -> Scored:
    """Make a scored pair of ``text_1``, ``text_2`` and ``score``.

    Raises:
        TrainingDataInvalid: the object is none, or the score not in [0, 1].
    """
    first, second = (_string(value, name, where=where) for name in ("text_1", "text_2"))
    score = value.get("score")
    try:
        number = float("nan") if score is None or isinstance(score, bool) else float(score)
    except (OverflowError, TypeError, ValueError):
        number = float("nan")
    if not 0 <= number <= 1:
        raise TrainingDataInvalid(f"{where}: expected a 'score' in [0, 1], got {score!a}")
    return Scored(first, second, number, _split(value, where=where))


def group(value: dict[str, Any], where: str) -> Grouped:
    """Make a group of ``question``, ``right`` and ``wrong`` passages.

    Raises:
        TrainingDataInvalid: the object is none.
    """
    question = _string(value, "question", where=where)
    right, wrong = (_strings(value, name, where=where) for name in ("right", "wrong"))
    return Grouped(question, right, wrong, _split(value, where=where))


def _strings(value: dict[str, Any], name: str, *, where: str) -> tuple[str, ...]:
    found = value.get(name)
    if not isinstance(found, list) or not 1 <= len(found) <= MAX_PASSAGES:
        got = f"{len(found)}" if isinstance(found, list) else type(found).__name__
        raise TrainingDataInvalid(
            f"{where}: expected an array of 1 to {MAX_PASSAGES} strings as {name!r}, got {got}"
        )
    return tuple(_string({name: one}, name, where=where) for one in found)


def from_lines(data: bytes, make: Make[_Row]) -> list[_Row]:
    """Read JSON lines, an object each.

    Raises:
        TrainingDataInvalid: a line is no such object; the detail says which.
    """
    rows = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"line {number}"
        try:
            value = reading.parse(line)
        except RequestInvalid as error:
            raise TrainingDataInvalid(f"{where}: {error.detail}") from error
        if not isinstance(value, dict):
            raise TrainingDataInvalid(f"{where}: expected an object, got {type(value).__name__}")
        rows.append(make(value, where))
    return rows


def from_csv(data: bytes, make: Make[_Row], *, names: Sequence[str]) -> list[_Row]:
    """Read CSV (RFC 4180) with a header line that has each of ``names`` once.

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
            header = fields
            for name in names:
                if header.count(name) != 1:
                    raise TrainingDataInvalid(f"expected one column {name!r}, got {header}")
            continue
        if len(fields) != len(header):
            raise TrainingDataInvalid(
                f"record {number}: expected {len(header)} fields, got {len(fields)}"
            )
        value = {name: field for name, field in zip(header, fields, strict=True) if field != ""}
        rows.append(make(value, f"record {number}"))
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


def _split(value: dict[str, Any], *, where: str) -> str | None:
    split = value.get("split")
    if split is not None and split not in SPLITS:
        raise TrainingDataInvalid(f"{where}: expected a split of {SPLITS}, got {split!a}")
    return split


def _string(value: dict[str, Any], name: str, *, where: str) -> str:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, str | int):
        got = "nothing" if found is None else type(found).__name__
        raise TrainingDataInvalid(f"{where}: expected a string as {name!r}, got {got}")
    text = str(found)
    if not text.strip() or not reading.encodable(text):
        raise TrainingDataInvalid(f"{where}: expected text that is not empty as {name!r}")
    return text


def of_json(rows: Any, make: Make[_Row], *, name: str, keys: Sequence[str]) -> list[_Row]:
    """Check the rows of a JSON body's ``source``, which are under ``name``.

    Raises:
        TrainingDataInvalid: one of them is no row; the detail says which.
    """
    if not isinstance(rows, list):
        raise TrainingDataInvalid(f"/source/{name}: expected an array, got {type(rows).__name__}")
    found = []
    for number, value in enumerate(rows):
        where = f"row {number}"
        if not isinstance(value, dict):
            raise TrainingDataInvalid(f"{where}: expected an object, got {type(value).__name__}")
        if extra := value.keys() - {*keys, "split"}:
            known = ", ".join((*keys, "split"))
            raise TrainingDataInvalid(f"{where}: expected {known}; got {min(extra)!a}")
        found.append(make(value, where))
    return found
