"""Search and answer from a collection of several partitions.

Cosines of partitions can be compared as they are. A hybrid search joins cosines and weights of
words on the scale of what it compares: here that is what all partitions have compared, so hits are
ordered as one collection would order them. How rare a word is, each partition counts for itself,
so they are asked for that first, and told what they have together.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from struct import pack
from typing import TypeVar, cast

from fastapi import Request

from verso_core.errors import DocumentUnknown
from verso_core.jobs import Collection, CollectionKind, Kind, SearchItem, SearchMode, SearchParams
from verso_core.jobs.collections import number_of_partition
from verso_core.jobs.heads.answer import Answered, AnswerItem, AnswerParams, AnswerPart
from verso_core.jobs.models import OpenModel
from verso_core.jobs.reconstruct import (
    ReconstructItem,
    ReconstructParams,
    RecordsItem,
    RecordsParams,
    StoredRecords,
    StoredText,
)
from verso_core.jobs.search import DENSE_SHARE, Found, Hit, Hits, Scale, Words
from verso_gateway import responses
from verso_gateway.job_service import Ended
from verso_gateway.partitions import scatter
from verso_gateway.partitions.logs.spans import statement_id
from verso_gateway.partitions.missing import left_out
from verso_ledger import NewJob

M = TypeVar("M", bound=OpenModel)
LINES_SHOWN = 3
"""Newest lines that a hit of a log collection has."""


async def found(
    request: Request, collection: Collection, params: SearchParams, item: SearchItem
) -> Found:
    """Return what a search of all partitions finds, as a search of one collection would.

    Raises:
        DocumentUnknown: there is no record of the id that is named.
        PartitionMissing: one is missing, and the caller prefers an error.
    """
    missing = left_out(request, collection)
    by_id = collection.kind is not CollectionKind.LOGS
    item = await (_with_vector if by_id else _with_text)(request, collection, item)
    scored = params.rerank_from if params.rerank else 0
    asked = params.model_copy(
        update={"limit": max(params.limit, scored), "explain": True, "collection": ""}
    )

    words: dict[str, dict[str, float]] = {}
    if by_id and params.mode in (SearchMode.SPARSE, SearchMode.HYBRID):
        words = await _rarities(request, collection, params, item)

    def job(name: str) -> NewJob:
        update = {"collection": name} | ({"rarity": words[name]} if words else {})
        own = asked.model_copy(update=update)
        return responses.job_of_one(request, Kind.SEARCH, own, item)

    ended = await scatter.every(request, collection, job)
    parts: list[Hits] = [responses.sole(one) for one in ended]
    if not by_id:
        parts = [_numbered(*one) for one in zip(scatter.names_of(collection), parts, strict=True)]
    hits = ranked(parts, params)
    return Found(
        job_id=ended[0].record.job_id,
        collection=collection.name,
        hits=tuple(hits if params.explain else (_without(hit, {"explain"}) for hit in hits)),
        timings_ms=scatter.timings(ended),
        **missing,
    )


async def _rarities(
    request: Request, collection: Collection, params: SearchParams, item: SearchItem
) -> dict[str, dict[str, float]]:
    """Return what each word counts more in all partitions than in one, by the partition's name."""

    def job(name: str) -> NewJob:
        own = SearchParams(collection=name, mode=params.mode, count_words=True)
        return responses.job_of_one(request, Kind.SEARCH, own, item)

    ended = await scatter.every(request, collection, job)
    told = [responses.sole(one).words for one in ended]
    return dict(zip(scatter.names_of(collection), rarities(told), strict=True))


def rarities(parts: Sequence[Words]) -> list[dict[str, float]]:
    """Return what each word counts more in all partitions together than in each of them."""
    words = {word for part in parts for word in part.having}
    whole = Words(
        chunks=sum(part.chunks for part in parts),
        having={word: sum(part.having.get(word, 0.0) for part in parts) for word in words},
    )
    return [
        {word: whole.rarity(word) / part.rarity(word) for word in part.having} for part in parts
    ]


def ranked(parts: Sequence[Hits], params: SearchParams) -> list[Hit]:
    """Join what partitions have found, best first.

    Args:
        parts: of each partition, with the parts of each score.
        params: of the search.
    """
    hits = [hit for part in parts for hit in part.hits]
    if params.mode is SearchMode.HYBRID:  # statements and records beside them have two scales
        statements = [hit for hit in hits if hit.statement is not None]
        hits = _rescaled(statements) + _rescaled([hit for hit in hits if hit.statement is None])
    if not params.lines:
        hits = _by_statement(hits)
    hits.sort(key=_best_first)
    if params.rerank:
        hits = _reranked(hits, params)
    return hits[: params.limit]


def _numbered(name: str, part: Hits) -> Hits:
    """Return the hits of a partition by time with the ids that its statements have outside it."""
    number = number_of_partition(name)
    hits = (
        hit
        if hit.statement_id is None
        else hit.model_copy(update={"statement_id": statement_id(number, hit.statement_id)})
        for hit in part.hits
    )
    return part.model_copy(update={"hits": tuple(hits)})


def _by_statement(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits with those of one statement joined: partitions of log lines each have their own.

    The joined one is that with the newest line, with the best score, and the lines of all.
    """
    found: list[Hit] = []
    by_text: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.statement is None:
            found.append(hit)
        else:
            by_text.setdefault(hit.statement, []).append(hit)
    for every in by_text.values():
        same = [hit for hit in every if _has_values(hit)] or every
        newest = max(same, key=lambda hit: hit.last_seen or hit.time or 0.0)
        if len(same) == 1:
            found.append(newest)
            continue
        lines = [line for hit in same for line in hit.lines]
        lines.sort(key=lambda line: line.time or "", reverse=True)
        first = [hit.first_seen for hit in same if hit.first_seen is not None]
        update = {
            "score": max(hit.score for hit in same),
            "count": sum(hit.count or 0 for hit in same),
            "first_seen": min(first, default=None),
            "lines": tuple(lines[:LINES_SHOWN]),
        }
        found.append(newest.model_copy(update=update))
    return found


def _rescaled(hits: Sequence[Hit]) -> list[Hit]:
    """Return hits with their scores on the scale of all partitions together."""
    scales = [hit.explain.scale for hit in hits if hit.explain and hit.explain.scale]
    if not scales:
        return list(hits)
    scale = Scale(
        lowest=min(one.lowest for one in scales),
        highest=max(one.highest for one in scales),
        heaviest=max(one.heaviest for one in scales),
    )
    spread = scale.highest - scale.lowest
    found = []
    for hit in hits:
        told = hit.explain
        if told is None or told.dense is None or told.sparse is None or _has_values(hit):
            found.append(hit)
            continue
        near = (told.dense - scale.lowest) / (spread or 1.0)
        said = told.sparse / (scale.heaviest or 1.0)
        score = DENSE_SHARE * near + (1 - DENSE_SHARE) * said
        told = told.model_copy(update={"fused": score, "scale": scale})
        found.append(hit.model_copy(update={"score": score, "explain": told}))
    return found


def _has_values(hit: Hit) -> bool:
    """Whether log lines were found by their values: they come first, and their score is 1."""
    return hit.explain is not None and bool(hit.explain.values)


def _best_first(hit: Hit) -> tuple[bool, float, float, str]:
    by_value = _has_values(hit)
    newest = (hit.last_seen or hit.time or 0.0) if by_value else 0.0
    return not by_value, -hit.score, -newest, hit.id


def _reranked(hits: list[Hit], params: SearchParams) -> list[Hit]:
    """Order the best hits again by the search's score and the head's, mixed as a worker does."""
    read = [hit for hit in hits[: params.rerank_from] if hit.rerank_score is not None]
    scores = _spread([hit.score for hit in read])
    heads = _spread([hit.rerank_score or 0.0 for hit in read])
    share = params.rerank_share
    mixed = [(1 - share) * one + share * two for one, two in zip(scores, heads, strict=True)]
    order = sorted(range(len(read)), key=lambda n: -mixed[n])
    rest = [hit for hit in hits[: params.rerank_from] if hit.rerank_score is None]
    return [*(read[n] for n in order), *rest, *map(_unread, hits[params.rerank_from :])]


def _unread(hit: Hit) -> Hit:
    """Return a hit as a search gives it that no head has read."""
    read = {"rerank_score", "rerank_share"}
    if hit.explain is not None:
        hit = hit.model_copy(update={"explain": _without(hit.explain, read)})
    return _without(hit, read)


def _without(model: M, names: AbstractSet[str]) -> M:
    """Return a model as if some of its fields had never been set."""
    kept = model.model_fields_set - names
    fields = {name: getattr(model, name) for name in kept}
    return cast("M", type(model).model_construct(kept, **fields))


def _spread(values: Sequence[float]) -> list[float]:
    low = min(values, default=0.0)
    spread = max(values, default=0.0) - low
    return [(value - low) / (spread or 1.0) for value in values]


async def _with_text(request: Request, collection: Collection, item: SearchItem) -> SearchItem:
    """Return a query by the text of the line that an item names: its partition alone knows it.

    Raises:
        DocumentUnknown: there is no such line.
    """
    if item.id is None:
        return item
    params = ReconstructParams(collection=scatter.holder(collection, item.id))
    job = responses.job_of_one(request, Kind.RECONSTRUCT, params, ReconstructItem(item.id))
    stored: StoredText = responses.sole(await responses.finish(request, job))
    return SearchItem(stored.data)


async def _with_vector(request: Request, collection: Collection, item: SearchItem) -> SearchItem:
    """Return a query by the vector of the record that an item names.

    Raises:
        DocumentUnknown: there is no such record.
    """
    if item.id is None:
        return item
    chunk = item.chunk or 0
    params = RecordsParams(collection=scatter.holder(collection, item.id), vector=True)
    job = responses.job_of_one(request, Kind.RECORDS, params, RecordsItem(item.id, chunk))
    stored: StoredRecords = responses.sole(await responses.finish(request, job))
    vector = stored.records[0].vector if stored.records else None
    if vector is None:
        raise DocumentUnknown(f"no vector for {item.id!a} chunk {chunk}")
    return SearchItem(pack(f"<{len(vector)}f", *vector), vector=True)


async def answered(
    request: Request, collection: Collection, params: AnswerParams, item: AnswerItem
) -> Ended:
    """Answer a question from the records that are nearest to it in all partitions.

    A search says how many of the nearest each partition has; each answers from that many.

    Raises:
        PartitionMissing: one is missing, and the caller prefers an error.
    """
    missing = left_out(request, collection)
    query = SearchItem(item.texts[: item.split[0]])
    asked = SearchParams(
        limit=params.limit, mode=SearchMode.DENSE, filter=params.filter, with_text=False
    )

    def search(name: str) -> NewJob:
        own = asked.model_copy(update={"collection": name})
        return responses.job_of_one(request, Kind.SEARCH, own, query)

    names = scatter.names_of(collection)
    ended = await scatter.each(request, names, search)
    near = sorted(
        (-hit.score, hit.id, name)
        for name, one in zip(names, ended, strict=True)
        for hit in responses.sole(one).hits
    )[: params.limit]
    count = {name: sum(one[2] == name for one in near) for name in names}
    asking = [name for name in names if count[name]] or names[:1]

    def answer(name: str) -> NewJob:
        update = {"collection": name, "limit": max(1, count[name]), "stream": False}
        return responses.job_of_one(request, Kind.ANSWER, params.model_copy(update=update), item)

    parts = await scatter.each(request, asking, answer)
    whole = joined([responses.sole(one) for one in parts], top_k=params.top_k)
    whole = whole.model_copy(update=missing)
    first = parts[0]
    result = replace(first.results[0], items=[whole], timings_ms=scatter.timings(parts))
    return replace(first, results=[result])


def joined(parts: Sequence[Answered], *, top_k: int) -> Answered:
    """Join the answers of partitions, best first."""
    answers = sorted((one for part in parts for one in part.answers), key=_by_margin)[:top_k]
    best = answers[0].score - answers[0].null_score if answers else None
    return parts[0].model_copy(
        update={
            "answered": best is not None and best > parts[0].null_threshold,
            "contexts": sum(part.contexts for part in parts),
            "answers": tuple(answers),
            "failed": tuple(one for part in parts for one in part.failed),
        }
    )


def _by_margin(part: AnswerPart) -> tuple[float, float, str, int]:
    near = part.search_score or 0.0
    return part.null_score - part.score, -near, part.id or "", part.start_byte
