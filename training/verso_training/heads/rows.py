"""Check and split labelled rows.

Steps:

1. unusable rows raise an error with the expected and the actual form;
2. a text that occurs twice with one label is kept once; with several labels it is dropped,
   which is an error for more than ``MAX_CONTRADICTED`` of the texts;
3. labels with fewer than ``FEWEST`` rows are dropped and reported;
4. rows without a split get one by the hash of their document or text, stratified by label: no
   document is both trained on and measured on.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from verso_core.errors import TrainingDataInvalid

FEWEST = 4
MAX_CONTRADICTED = 0.2


class RowSplit(StrEnum):
    """The use of a row."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True)
class Row:
    """One labelled example: a text, or the stored vector of one.

    Attributes:
        label: Its class.
        text: Required if there is no vector, and by heads that read tokens.
        vector: As stored, widened. Shape: (D,), float32.
        split: None: by the hash of the document, or else of the text.
        document: Id of its document, if several rows may be of one document.
        fold: Of rows that drift together, such as those of a project or of three months.
        weight: Of a validation row where scope is learned: near misses are rarer than noise.
    """

    label: str
    text: str | None = None
    vector: NDArray[np.float32] | None = None
    split: RowSplit | None = None
    document: str | None = None
    fold: str | None = None
    weight: float = 1.0

    def key(self) -> bytes:
        """Return the key that equal rows share."""
        if self.text is not None:
            return self.text.encode("utf-8", "surrogatepass")
        assert self.vector is not None
        return self.vector.tobytes()


@dataclass(frozen=True)
class Checked:
    """Checked rows.

    Attributes:
        rows: In the order given, every one with a split.
        labels: Sorted.
        dropped_labels: With fewer than ``FEWEST`` rows.
        contradicted: Texts dropped because they had several labels.
        duplicates: Rows dropped because their text occurred before.
    """

    rows: tuple[Row, ...]
    labels: tuple[str, ...]
    dropped_labels: tuple[str, ...]
    contradicted: int
    duplicates: int

    def of(self, split: RowSplit) -> list[Row]:
        """Return the rows of one split."""
        return [row for row in self.rows if row.split is split]

    def targets(self, split: RowSplit) -> NDArray[np.int64]:
        """Return the label numbers of one split. Shape: (N,)."""
        number = {label: i for i, label in enumerate(self.labels)}
        return np.array([number[row.label] for row in self.of(split)], np.int64)

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each split."""
        return {str(split): len(self.of(split)) for split in RowSplit}

    def digest(self) -> str:
        """SHA-256 over labels, splits and texts: the data of a head."""
        total = hashlib.sha256()
        for row in self.rows:
            total.update(f"{row.label}\0{row.split}\0".encode() + row.key() + b"\0")
        return total.hexdigest()


def check(
    rows: Sequence[Row],
    *,
    dim: int,
    tokens: bool = False,
    validation_share: float = 0.15,
    test_share: float = 0.15,
) -> Checked:
    """Check and split rows.

    Args:
        rows: At least two labels with ``FEWEST`` rows each.
        dim: Width of the space.
        tokens: Whether the head reads texts, so that vectors are not enough.
        validation_share: Of rows without a split.
        test_share: Of rows without a split.

    Raises:
        TrainingDataInvalid: rows that cannot be trained on.
    """
    for number, row in enumerate(rows):
        _check_row(row, number=number, dim=dim, tokens=tokens)
    kept, contradicted, duplicates = _distinct(rows)
    count = Counter(row.label for row in kept)
    dropped = tuple(sorted(label for label, n in count.items() if n < FEWEST))
    labels = tuple(sorted(label for label in count if label not in dropped))
    if len(labels) < 2:
        raise TrainingDataInvalid(
            f"expected two or more labels with {FEWEST} rows or more, got {dict(count)}"
        )
    usable = [row for row in kept if row.label not in dropped]
    split = _split(usable, validation_share=validation_share, test_share=test_share)
    trained = {row.label for row in split if row.split is RowSplit.TRAIN}
    if unseen := sorted(set(labels) - trained):
        raise TrainingDataInvalid(
            f"expected training rows of every label, got none of {unseen[0]!r}"
        )
    return Checked(tuple(split), labels, dropped, contradicted, duplicates)


def _check_row(row: Row, *, number: int, dim: int, tokens: bool) -> None:
    if not row.label:
        raise TrainingDataInvalid(f"row {number}: expected a label, got an empty one")
    if tokens and row.text is None:
        raise TrainingDataInvalid(f"row {number}: expected a text: this head reads tokens")
    if row.text is None and row.vector is None:
        raise TrainingDataInvalid(f"row {number}: expected a text or a vector")
    if row.text is not None and not row.text.strip():
        raise TrainingDataInvalid(f"row {number}: expected a text, got an empty one")
    if row.vector is not None:
        if row.vector.shape != (dim,):
            raise TrainingDataInvalid(
                f"row {number}: expected a vector of {dim}, got shape {row.vector.shape}"
            )
        if not np.isfinite(row.vector).all():
            raise TrainingDataInvalid(f"row {number}: expected finite numbers in the vector")


def _distinct(rows: Sequence[Row]) -> tuple[list[Row], int, int]:
    labels: dict[bytes, set[str]] = defaultdict(set)
    for row in rows:
        labels[row.key()].add(row.label)
    contradicted = sum(len(found) > 1 for found in labels.values())
    if contradicted > MAX_CONTRADICTED * max(1, len(labels)):
        example = next(sorted(found) for found in labels.values() if len(found) > 1)
        raise TrainingDataInvalid(
            f"expected one label for each text, got several for {contradicted} of {len(labels)} "
            f"texts, such as {example[0]!r} and {example[1]!r}"
        )
    # The first row of a text decides its split.
    seen: set[bytes] = set()
    kept = []
    for row in rows:
        key = row.key()
        if len(labels[key]) == 1 and key not in seen:
            kept.append(row)
        seen.add(key)
    return kept, contradicted, len(rows) - len(labels)


def _split(rows: Sequence[Row], *, validation_share: float, test_share: float) -> list[Row]:
    by_label: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.split is None:
            by_label[row.label].append(index)
    split: dict[int, RowSplit] = {}
    for indices in by_label.values():
        # With fewer than three documents one part would be empty: their rows are split as texts.
        names = [rows[i].document for i in indices]
        whole = None not in names and len(set(names)) >= len(RowSplit)
        keys = [str(rows[i].document).encode() if whole else rows[i].key() for i in indices]
        shares = portions(keys, validation_share=validation_share, test_share=test_share)
        split.update(zip(indices, shares, strict=True))
    return [row if i not in split else replace(row, split=split[i]) for i, row in enumerate(rows)]


def portions(
    keys: Sequence[bytes], *, validation_share: float, test_share: float
) -> list[RowSplit]:
    """Return the split of each example, by the hash of its key; examples of one key stay together.

    Of three keys or more, each part gets one at least, and the key with the most examples is
    trained on.

    Args:
        keys: One an example.
        validation_share: Of the examples, about.
        test_share: Of the examples, about.
    """
    if not keys:
        return []
    count = Counter(keys)
    ranked = sorted(count, key=lambda key: hashlib.sha256(key).digest())
    largest = max(reversed(ranked), key=lambda key: count[key])
    ranked.remove(largest)
    parts = {largest: RowSplit.TRAIN}
    for share, part, left in (
        (validation_share, RowSplit.VALIDATION, 1),
        (test_share, RowSplit.TEST, 0),
    ):
        wanted, given = max(1, round(share * len(keys))), 0
        while given < wanted and len(ranked) > left:
            key = ranked.pop(0)
            parts[key] = part
            given += count[key]
    return [parts.get(key, RowSplit.TRAIN) for key in keys]


def digest(parts: Mapping[RowSplit, Iterable[object]]) -> str:
    """SHA-256 over examples and their parts: the data of a head that is not a classifier."""
    total = hashlib.sha256()
    for part, found in parts.items():
        for example in found:
            total.update(f"{part}\0{example!r}\0".encode())
    return total.hexdigest()
