"""How well a platform finds what it should, measured by what it serves.

A folder in the layout of BEIR (Thakur et al. 2021) holds ``corpus.jsonl``, ``queries.jsonl`` and
``qrels/SPLIT.tsv``; files may end in ``.xz`` or ``.gz``. Its documents are taken in by a new
collection, its questions are searched for once when the documents are in and once more when every
text has been verified and dropped, by vectors, by words and by both, if asked to then reranked by
heads. The collection is deleted.

A document's rank is that of its best record. Figures are means over the questions that the split
judges: nDCG@10 with gains 2^relevance - 1 (Burges et al. 2005; for relevance 0 and 1 the same as
Järvelin & Kekäläinen 2002) and recall@k, the share of relevant documents among the first k.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import math
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from verso_client.client import Client
from verso_client.documents import Document
from verso_client.operations import Progress
from verso_core.errors import NotReady, RequestInvalid
from verso_core.jobs import RERANK_SHARE, Precision, SearchMode

CUT = 10
RECALL_AT = 100
_HITS = 300  # records asked for, so that a hundred documents are among them
_POLL_S = 2.0
_DRAWS = 2000
_LIKELY = 0.95

Judgements = Mapping[str, Mapping[str, int]]
"""Relevance of documents, by question and document."""


@dataclass(frozen=True, slots=True)
class Set:
    """Documents, and questions with what answers them."""

    name: str
    documents: Mapping[str, str]
    questions: Mapping[str, str]
    relevant: Judgements


@dataclass(frozen=True, slots=True)
class Reranker:
    """A head that scores pairs, how many of the nearest records it orders anew, and its share."""

    head: str
    scored: int
    share: float = RERANK_SHARE


class Gain(BaseModel):
    """What a head adds to nDCG@10, and the 95 % bootstrap interval of it over the questions."""

    mean: float
    low: float
    high: float


class Row(BaseModel):
    """What one mode of search reached; ``ms`` is the median time of a search.

    ``ndcg_95`` is the 95 % bootstrap interval of ``ndcg`` over the questions.
    """

    mode: SearchMode
    reranked_by: str | None
    texts: str
    ndcg: float
    ndcg_95: tuple[float, float]
    gain: Gain | None = None
    recall_10: float
    recall_100: float
    ms: float


class Report(BaseModel):
    """An evaluation; sizes in bytes, as the platform counts them."""

    name: str
    split: str
    documents: int
    chunks: int
    questions: int
    precision: Precision
    bytes_text: int
    bytes_vectors: int
    bytes_terms: int
    bytes_patches: int
    verified_before: int
    verified_after: int
    same_before_and_after: bool
    rows: list[Row]
    seconds: float


def read(folder: Path, *, split: str) -> Set:
    """Read a folder.

    Raises:
        RequestInvalid: a file is missing, is not in the layout, or judges nothing.
    """
    documents = {
        _field(row, "_id"): f"{row.get('title') or ''}\n{row.get('text') or ''}".strip()
        for row in _rows(folder, "corpus.jsonl")
    }
    relevant: dict[str, dict[str, int]] = {}
    with _open(folder / "qrels", f"{split}.tsv") as file:
        try:
            for judged in csv.DictReader(file, delimiter="\t"):
                if (grade := int(judged["score"])) > 0:
                    relevant.setdefault(judged["query-id"], {})[judged["corpus-id"]] = grade
        except (KeyError, TypeError, ValueError) as exc:
            raise RequestInvalid(
                f"expected columns query-id, corpus-id, score in {split}.tsv of {folder}"
            ) from exc
    questions = {
        name: _field(row, "text")
        for row in _rows(folder, "queries.jsonl")
        if (name := _field(row, "_id")) in relevant
    }
    if not questions or not documents:
        raise RequestInvalid(f"expected documents and judged questions in {folder}, found none")
    return Set(folder.name, documents, questions, relevant)


def evaluate(
    client: Client,
    given: Set,
    *,
    split: str,
    precision: Precision,
    patience_s: float,
    rerankers: Sequence[Reranker] = (),
    tell: Callable[[Progress], None] | None = None,
) -> Report:
    """Measure a set on the platform; the collection made for it is deleted whatever happens.

    Args:
        rerankers: measured too, each on what the search by both finds.

    Raises:
        VersoError: the platform failed, a document was refused, or the texts were not all
            verified within ``patience_s`` seconds.
    """
    started = time.monotonic()
    name = f"eval-{uuid.uuid4().hex[:12]}"
    client.create_collection(name, precision=precision, search=SearchMode.HYBRID)
    try:
        documents = [Document(text, id=one) for one, text in given.documents.items()]
        report = client.ingest(documents, collection=name, progress=tell)
        for failed in report.failed:
            if failed.error is not None:
                raise failed.error.exception()
        before = client.stats(name)
        first, found = _measure(client, given, rerankers, collection=name, texts="held")
        after = _verified(client, name, count=len(documents), patience_s=patience_s)
        second, again = _measure(client, given, rerankers, collection=name, texts="dropped")
    finally:
        client.delete_collection(name)
    return Report(
        name=given.name,
        split=split,
        documents=after.documents,
        chunks=after.chunks,
        questions=len(given.questions),
        precision=precision,
        bytes_text=after.bytes_text,
        bytes_vectors=after.bytes_vectors,
        bytes_terms=after.bytes_terms,
        bytes_patches=after.bytes_patches,
        verified_before=before.verified,
        verified_after=after.verified,
        same_before_and_after=found == again,
        rows=[*first, *second],
        seconds=round(time.monotonic() - started, 1),
    )


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], *, cut: int = CUT) -> float:
    """Return the normalised discounted cumulative gain of the first ``cut`` documents, 0 to 1."""
    best = sorted(grades.values(), reverse=True)[:cut]
    return _cumulated([grades.get(one, 0) for one in ranked[:cut]]) / _cumulated(best)


def recall(ranked: Sequence[str], grades: Mapping[str, int], *, cut: int) -> float:
    """Return the share of relevant documents among the first ``cut``, 0 to 1."""
    return len(set(ranked[:cut]) & grades.keys()) / len(grades)


def gain(reached: Sequence[float], without: Sequence[float]) -> Gain:
    """Return what was gained, with the ``bounds`` of it.

    Args:
        reached: a figure of each question.
        without: the same figure without what is judged.
    """
    gains = [one - other for one, other in zip(reached, without, strict=True)]
    low, high = bounds(gains)
    return Gain(mean=_mean(gains), low=low, high=high)


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of a figure of each question, by bootstrap over them.

    The percentile interval of Efron & Tibshirani 1993, chapter 13; the draws are the same each
    time.
    """
    draw = random.Random(0)
    count = len(values)
    means = sorted(math.fsum(draw.choices(values, k=count)) / count for _ in range(_DRAWS))
    cut = round(_DRAWS * (1 - _LIKELY) / 2)
    return round(means[cut], 4), round(means[_DRAWS - 1 - cut], 4)


def _cumulated(grades: Sequence[int]) -> float:
    return math.fsum((2**grade - 1) / math.log2(n + 2) for n, grade in enumerate(grades))


def _measure(
    client: Client, given: Set, rerankers: Sequence[Reranker], *, collection: str, texts: str
) -> tuple[list[Row], list[list[str]]]:
    rows, found = [], []
    plain: list[float] = []  # nDCG by question of the latest search that no head reranked
    ways: list[tuple[SearchMode, Reranker | None]] = [(mode, None) for mode in SearchMode]
    ways += [(SearchMode.HYBRID, one) for one in rerankers]
    judged = [given.relevant[question] for question in given.questions]
    for mode, again in ways:
        ranked, ms = _asked(client, given, again, collection=collection, mode=mode)
        pairs = list(zip(ranked, judged, strict=True))
        reached = [ndcg(*pair) for pair in pairs]
        rows.append(
            Row(
                mode=mode,
                reranked_by=None if again is None else again.head,
                texts=texts,
                ndcg=_mean(reached),
                ndcg_95=bounds(reached),
                gain=None if again is None else gain(reached, plain),
                recall_10=_mean([recall(*pair, cut=CUT) for pair in pairs]),
                recall_100=_mean([recall(*pair, cut=RECALL_AT) for pair in pairs]),
                ms=ms,
            )
        )
        plain = reached if again is None else plain
        found += ranked
    return rows, found


def _asked(
    client: Client, given: Set, again: Reranker | None, *, collection: str, mode: SearchMode
) -> tuple[list[list[str]], float]:
    """Search for every question; gives documents, best first, and the median time."""
    ranked, spent = [], []
    for question in given.questions.values():
        start = time.monotonic()
        hits = client.search(
            question,
            collection=collection,
            limit=_HITS,
            mode=mode,
            with_text=False,
            rerank=None if again is None else again.head,
            rerank_from=1 if again is None else again.scored,
            rerank_share=RERANK_SHARE if again is None else again.share,
        ).hits
        spent.append(1000 * (time.monotonic() - start))
        ranked.append(list(dict.fromkeys(hit.document for hit in hits)))
    return ranked, round(sorted(spent)[len(spent) // 2], 1)


def _verified(client: Client, name: str, *, count: int, patience_s: float) -> Any:
    deadline = time.monotonic() + patience_s
    while (stats := client.stats(name)).verified < count:
        if time.monotonic() > deadline:
            raise NotReady(
                f"expected {count} documents verified within {patience_s:g} s, got {stats.verified}"
            )
        time.sleep(_POLL_S)
    return stats


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), 4)


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    with _open(folder, name) as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
            except ValueError as exc:
                raise RequestInvalid(f"expected JSON in line {number} of {name}") from exc
            if not isinstance(row, dict):
                raise RequestInvalid(f"expected an object in line {number} of {name}")
            yield row


def _field(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise RequestInvalid(f"expected a string {name!r} in each row, got {value!r}")
    return value


def _open(folder: Path, name: str) -> io.TextIOBase:
    """Open a file of the layout, packed or not."""
    for path, opens in (
        (folder / name, open),
        (folder / f"{name}.xz", lzma.open),
        (folder / f"{name}.gz", gzip.open),
    ):
        if path.is_file():
            file: Any = opens(path, "rt", encoding="utf-8", newline="")
            return file  # type: ignore[no-any-return]  # three libraries, one shape
    raise RequestInvalid(f"expected {name}, {name}.xz or {name}.gz in {folder}")
