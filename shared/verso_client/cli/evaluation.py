"""Measure the retrieval quality of a platform: ``verso eval retrieval``.

1. Read a folder in the layout of BEIR (Thakur et al. 2021): ``corpus.jsonl``, ``queries.jsonl`` and
   ``qrels/SPLIT.tsv``; the files may end in ``.xz`` or ``.gz``.
2. Store its documents in a new collection.
3. Search for its questions by vectors, by words, by both, and by both with each reranker: once
   when the documents are stored, and again when every text has been verified and dropped.
4. Delete the collection.

A document's rank is that of its best record. Measures are means over the questions that the split
judges: nDCG@10 with the relevance as gain (Järvelin & Kekäläinen 2002) and recall at 10 and 100,
computed by ``ir_measures`` as BEIR and MTEB compute them.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from verso_client.cli.drawing import Bars, bars
from verso_client.client import Client
from verso_client.operations.documents import Document, Progress
from verso_core.errors import NotReady, RequestInvalid
from verso_core.jobs import RERANK_SHARE, Precision, SearchMode

CUT = 10
RECALL_AT = 100
_HITS = 300  # records requested, enough for a hundred documents
_POLL_S = 2.0
_RESAMPLES = 2000
_CONFIDENCE = 0.95

Judgements = Mapping[str, Mapping[str, int]]
"""Relevance of documents, by question and document."""


@dataclass(frozen=True, slots=True)
class Set:
    """Documents, and questions with their relevant documents."""

    name: str
    documents: Mapping[str, str]
    questions: Mapping[str, str]
    relevant: Judgements


@dataclass(frozen=True, slots=True)
class Measures:
    """Measures by question, each in [0, 1]."""

    ndcg_10: Sequence[float]
    recall_10: Sequence[float]
    recall_100: Sequence[float]


@dataclass(frozen=True, slots=True)
class Reranker:
    """A head that scores pairs, how many of the nearest records it reorders, and its weight."""

    head: str
    scored: int
    share: float = RERANK_SHARE


class Gain(BaseModel):
    """What a head adds to nDCG@10, with the 95 % bootstrap interval over the questions."""

    mean: float
    low: float
    high: float


class Row(BaseModel):
    """The measures of one mode of search; ``ms`` is the median time of a search.

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
    """An evaluation; sizes are bytes, as the platform counts them."""

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


def drawn(report: Report) -> str:
    """Return the quality of each mode as SVG, with its interval; texts were dropped before."""
    last = {(row.mode, row.reranked_by): row for row in report.rows}
    return bars(
        f"{report.name}, {report.split}: nDCG@10, {report.questions} questions",
        [
            Bars(
                row.mode if row.reranked_by is None else f"{row.mode}, then {row.reranked_by}",
                [100 * row.ndcg],
                (100 * row.ndcg_95[0], 100 * row.ndcg_95[1]),
            )
            for row in last.values()
        ],
        series=["nDCG@10"],
        label="nDCG@10, %, with the 95 % interval over the questions",
    )


def read(folder: Path, *, split: str) -> Set:
    """Return the documents and the judged questions of a folder.

    Raises:
        RequestInvalid: a file is missing or not in the layout, or no question is judged.
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
        except (KeyError, TypeError, ValueError, csv.Error) as exc:
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
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Evaluate the platform on a set; the collection made for it is always deleted.

    Args:
        rerankers: evaluated too, each on what the hybrid search finds.

    Raises:
        VersoError: the platform failed, a document was refused, or some text was not verified
            within ``patience_s`` seconds.
    """
    started = time.monotonic()
    name = f"eval-{uuid.uuid4().hex[:12]}"
    client.create_collection(name, precision=precision, search=SearchMode.HYBRID)
    try:
        documents = [Document(text, id=one) for one, text in given.documents.items()]
        report = client.ingest(documents, collection=name, progress=on_progress)
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


def measures(
    rankings: Sequence[Sequence[str]], judgements: Sequence[Mapping[str, int]]
) -> Measures:
    """Return the measures of each question's ranking, as ``ir_measures`` computes them.

    Args:
        rankings: documents by question, best first.
        judgements: grades > 0 of the relevant documents by question.

    Raises:
        ModuleNotFoundError: the extra ``eval`` is not installed.
    """
    import ir_measures
    from ir_measures import R, nDCG

    names = [str(number) for number in range(len(rankings))]
    run = {
        name: {document: -float(rank) for rank, document in enumerate(ranked)}
        for name, ranked in zip(names, rankings, strict=True)
    }
    wanted = (nDCG @ CUT, R @ CUT, R @ RECALL_AT)
    found = {
        (one.measure, one.query_id): one.value
        for one in ir_measures.iter_calc(
            wanted, dict(zip(names, map(dict, judgements), strict=True)), run
        )
    }
    return Measures(*([float(found[measure, name]) for name in names] for measure in wanted))


def ndcg(ranked: Sequence[str], grades: Mapping[str, int]) -> float:
    """Return nDCG@10 of one question's ranking, in [0, 1]."""
    return measures([ranked], [grades]).ndcg_10[0]


def gain(reached: Sequence[float], without: Sequence[float]) -> Gain:
    """Return the mean gain with its ``bounds``.

    Args:
        reached: a measure of each question.
        without: the same measure without what is evaluated.
    """
    gains = [one - other for one, other in zip(reached, without, strict=True)]
    low, high = bounds(gains)
    return Gain(mean=_mean(gains), low=low, high=high)


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of a measure of each question.

    The percentile bootstrap of Efron & Tibshirani 1993, chapter 13, over the questions; the
    resamples are the same each time.
    """
    from scipy.stats import bootstrap

    if len(set(values)) == 1:  # scipy refuses a single value, and of equal ones the mean is exact
        return round(values[0], 4), round(values[0], 4)
    found = bootstrap(
        (values,),
        lambda sample, axis: sample.mean(axis=axis),
        n_resamples=_RESAMPLES,
        confidence_level=_CONFIDENCE,
        method="percentile",
        batch=100,  # bounds the memory: resamples at once, times questions
        rng=0,
    ).confidence_interval
    return round(float(found.low), 4), round(float(found.high), 4)


def _measure(
    client: Client, given: Set, rerankers: Sequence[Reranker], *, collection: str, texts: str
) -> tuple[list[Row], list[list[str]]]:
    rows, found = [], []
    plain: Sequence[float] = ()  # nDCG by question of the last search without a reranker
    ways: list[tuple[SearchMode, Reranker | None]] = [(mode, None) for mode in SearchMode]
    ways += [(SearchMode.HYBRID, one) for one in rerankers]
    judged = [given.relevant[question] for question in given.questions]
    for mode, again in ways:
        ranked, ms = _asked(client, given, again, collection=collection, mode=mode)
        reached = measures(ranked, judged)
        rows.append(
            Row(
                mode=mode,
                reranked_by=None if again is None else again.head,
                texts=texts,
                ndcg=_mean(reached.ndcg_10),
                ndcg_95=bounds(reached.ndcg_10),
                gain=None if again is None else gain(reached.ndcg_10, plain),
                recall_10=_mean(reached.recall_10),
                recall_100=_mean(reached.recall_100),
                ms=ms,
            )
        )
        plain = reached.ndcg_10 if again is None else plain
        found += ranked
    return rows, found


def _asked(
    client: Client, given: Set, again: Reranker | None, *, collection: str, mode: SearchMode
) -> tuple[list[list[str]], float]:
    """Search for every question; return the documents, best first, and the median time in ms."""
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
    return round(statistics.fmean(values), 4)


def _rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    with _open(folder, name) as file:
        for number, line in enumerate(_decoded(file, name), 1):
            try:
                row = json.loads(line)
            except ValueError as exc:
                raise RequestInvalid(f"expected JSON in line {number} of {name}") from exc
            if not isinstance(row, dict):
                raise RequestInvalid(f"expected an object in line {number} of {name}")
            yield row


def _decoded(file: io.TextIOBase, name: str) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as exc:
        raise RequestInvalid(f"expected UTF-8 in {name}") from exc


def _field(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise RequestInvalid(f"expected a string {name!r} in each row, got {value!r}")
    return value


def _open(folder: Path, name: str) -> io.TextIOBase:
    """Open a file of the layout, compressed or not."""
    for path, opens in (
        (folder / name, open),
        (folder / f"{name}.xz", lzma.open),
        (folder / f"{name}.gz", gzip.open),
    ):
        if path.is_file():
            file: Any = opens(path, "rt", encoding="utf-8", newline="")
            return file  # type: ignore[no-any-return]  # three libraries, one shape
    raise RequestInvalid(f"expected {name}, {name}.xz or {name}.gz in {folder}")
