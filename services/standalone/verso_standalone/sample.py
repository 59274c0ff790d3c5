"""The sample corpus that ships with Verso, and questions whose answers are known.

``corpus/README.md`` names the sources of the texts and their licences.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verso_client import Document
from verso_core.jobs import Filter

FOLDER = Path(__file__).parent / "corpus"
TEXTS = 2000
"""Texts that the demo ingests unless more are asked for: a minute on two cores."""


@dataclass(frozen=True, slots=True)
class Question:
    """A search and the ids of the documents that answer it."""

    query: str
    right: frozenset[str]
    filter: Filter | None


def documents(limit: int | None = None) -> list[Document]:
    """Return the corpus in its order; every document has an id.

    Args:
        limit: return at most so many documents: those that answer the questions, and others at
            equal distances.
    """
    found = list(_corpus())
    if limit is None or limit >= len(found):
        return found
    kept = {name for question in questions() for name in question.right}
    others = [str(document.id) for document in found if document.id not in kept]
    count = limit - len(kept)
    kept.update(others[number * len(others) // count] for number in range(count))
    return [document for document in found if document.id in kept]


def _corpus() -> Iterator[Document]:
    with lzma.open(FOLDER / "corpus.jsonl.xz", "rt", encoding="utf-8", newline="\n") as stream:
        for line in stream:
            row = json.loads(line)
            yield Document(
                text=row["text"].encode("utf-8"),
                id=row["id"],
                metadata=row["metadata"],
                time=row.get("time"),
            )


def questions() -> list[Question]:
    """Return the ten questions."""
    rows = json.loads((FOLDER / "searches.json").read_text(encoding="utf-8"))
    return [
        Question(
            query=row["query"],
            right=frozenset(row["right"]),
            filter=Filter.model_validate(row["filter"]) if "filter" in row else None,
        )
        for row in rows
    ]
