"""The shared SQuAD questions, split by article."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from verso_training.heads.questions import Question


class Part(StrEnum):
    """The parts of the split by article."""

    TRAIN = "train"
    DEV = "dev"
    EVAL = "eval"


def read(root: Path, part: Part) -> list[Question]:
    """Return the shared SQuAD questions of one part: articles do not cross parts."""
    folder = root / "qa_squad"
    titles = json.loads((folder / "split_by_article.json").read_text(encoding="utf-8"))
    first = _questions(folder / "squad2_dev_shared.json.xz", set(titles[part.value]))
    if part is not Part.TRAIN:
        return list(first)
    second = _questions(folder / "squad11_dev_shared.json.xz", set(titles["train_11_only"]))
    return [*first, *second]


def _questions(path: Path, titles: set[str]) -> Iterator[Question]:
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        articles = json.load(stream)["data"]
    for article in articles:
        if article["title"] not in titles:
            continue
        for paragraph in article["paragraphs"]:
            for row in paragraph["qas"]:
                answers = () if row.get("is_impossible") else row["answers"]
                texts = tuple(dict.fromkeys(str(answer["text"]) for answer in answers))
                title = str(article["title"])
                yield Question(
                    str(row["id"]), str(row["question"]), str(paragraph["context"]), texts, title
                )
