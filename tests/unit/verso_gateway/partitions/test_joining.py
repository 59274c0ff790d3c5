"""What partitions tell, joined: as if one collection had told it."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verso_core.jobs import SearchMode, SearchParams, read_slice
from verso_core.jobs.collections import partition_names, partition_of
from verso_core.jobs.documents import (
    DocumentInfo,
    DocumentPage,
    Facet,
    Facets,
    FacetValue,
    ListParams,
    Order,
)
from verso_core.jobs.ingest import Ingested
from verso_core.jobs.models import Failed, Rejected
from verso_core.jobs.search import Explanation, Hit, Hits, Scale, Words
from verso_core.jobs.slices import Result
from verso_gateway.bodies.ids import ids_of_key
from verso_gateway.bodies.upload import Upload
from verso_gateway.partitions import documents, search

PARTITIONS = 4
times = st.none() | st.integers(0, 3).map(float)


def parted(rows: list[Any], name: Any) -> list[list[Any]]:
    """Return rows by the partition of their documents."""
    return [[row for row in rows if partition_of(name(row), PARTITIONS) == n] for n in range(4)]


def page_of(rows: list[DocumentInfo], params: ListParams) -> DocumentPage:
    """Return a page as a worker does."""
    ordered = documents.in_order(rows, params)
    end = params.page_end
    if end is not None:
        place = [(row.id, row.time if params.order is Order.TIME else None) for row in ordered]
        ordered = (
            ordered[place.index((end.id, end.time)) + 1 :]
            if ((end.id, end.time) in place)
            else behind(ordered, params)
        )
    page, more = ordered[: params.limit], len(ordered) > params.limit
    return DocumentPage(documents=tuple(page), next_cursor="more" if more else None)


def behind(ordered: list[DocumentInfo], params: ListParams) -> list[DocumentInfo]:
    """Return the documents behind the end of a page that this partition has not."""
    end = params.page_end
    assert end is not None
    last = DocumentInfo(id=end.id, written=0, bytes=0, time=end.time)
    both = documents.in_order([*ordered, last], params)
    return both[both.index(last) + 1 :]


@given(
    rows=st.dictionaries(st.text("abc", min_size=1, max_size=3), times, max_size=30),
    order=st.sampled_from(Order),
    descending=st.booleans(),
    limit=st.integers(1, 7),
)
def test_pages_of_partitions_are_the_list_of_one_collection(
    rows: dict[str, float | None], order: Order, descending: bool, limit: int
) -> None:
    held = [DocumentInfo(id=one, written=1, bytes=1, time=at) for one, at in rows.items()]
    params = ListParams(collection="c", order=order, descending=descending, limit=limit)
    whole = [row.id for row in documents.in_order(held, params)]
    listed: list[str] = []
    cursor: str | None = None
    for _ in range(len(held) + 2):
        asked = params.model_copy(update={"cursor": cursor})
        parts = [page_of(part, asked) for part in parted(held, lambda row: row.id)]
        page = documents.joined_pages(parts, asked)
        listed += [row.id for row in page.documents]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == whole


@given(
    values=st.lists(st.none() | st.sampled_from(["a", "b", True, False, 1, 2, 1.5]), max_size=40),
    limit=st.integers(1, 4),
)
def test_facets_of_partitions_are_those_of_one_collection(values: list[Any], limit: int) -> None:
    def facets(rows: list[Any], most: int) -> Facets:
        found = [row for row in rows if row is not None]
        counts = Counter(
            (type(row).__name__ if isinstance(row, bool | str) else "number", row) for row in found
        )
        best = sorted(counts.items(), key=lambda row: (-row[1], row[0]))[:most]
        facet = Facet(
            field="f",
            values=tuple(FacetValue(value=value, documents=n) for (_, value), n in best),
            distinct=len(counts),
            missing=len(rows) - len(found),
        )
        return Facets(documents=len(rows), facets=(facet,))

    parts = [facets(values[n::PARTITIONS], 1000) for n in range(PARTITIONS)]
    joined = documents.joined_facets(parts, limit=limit)
    whole = facets(values, limit)
    assert joined == whole
    for one, two in zip(joined.facets[0].values, whole.facets[0].values, strict=True):
        assert type(one.value) is type(two.value)


scored = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.tuples(st.integers(-9, 10), st.integers(0, 20), st.integers(-5, 5)),
    min_size=1,
    max_size=40,
)


def hits_of(
    rows: dict[str, tuple[int, int, int]], params: SearchParams, *, everything: bool = False
) -> Hits:
    """Return what a search of some records finds, as a worker scores it."""
    if not rows:
        return Hits(hits=())
    dense = {one: row[0] / 10 for one, row in rows.items()}
    sparse = {one: row[1] / 4 for one, row in rows.items()}
    scale = Scale(
        lowest=min(dense.values()), highest=max(dense.values()), heaviest=max(sparse.values())
    )
    hits = []
    for one in rows:
        near = (dense[one] - scale.lowest) / ((scale.highest - scale.lowest) or 1.0)
        fused = 0.5 * near + 0.5 * sparse[one] / (scale.heaviest or 1.0)
        told = {"dense": dense[one], "sparse": sparse[one], "fused": fused, "scale": scale}
        hits.append(
            Hit(id=one, document=one, chunk=0, score=fused, explain=Explanation(**told), text=one)
        )
    hits.sort(key=lambda hit: (-hit.score, hit.id))
    for n, hit in enumerate(hits[: params.rerank_from if params.rerank else 0]):
        hits[n] = hit.model_copy(update={"rerank_score": float(rows[hit.id][2])})
    return Hits(hits=tuple(hits if everything else hits[: max(params.limit, params.rerank_from)]))


@given(
    parts=st.lists(
        st.tuples(st.integers(1, 500), st.lists(st.integers(0, 500), min_size=3, max_size=3)),
        min_size=1,
        max_size=5,
    )
)
def test_a_word_counts_in_each_partition_what_it_counts_in_all_together(
    parts: list[tuple[int, list[int]]],
) -> None:
    told = [
        Words(chunks=chunks, having={str(n): min(have, chunks) for n, have in enumerate(having)})
        for chunks, having in parts
    ]
    whole = Words(
        chunks=sum(one.chunks for one in told),
        having={n: sum(one.having[n] for one in told) for n in "012"},
    )
    for one, factors in zip(told, search.rarities(told), strict=True):
        for word, factor in factors.items():
            assert factor * one.rarity(word) == pytest.approx(whole.rarity(word))


@given(chunks=st.integers(1, 10_000_000), part=st.floats(0, 1))
def test_how_many_chunks_have_a_word_follows_from_how_rare_it_is(chunks: int, part: float) -> None:
    """So a worker finds it, as the store tells the weight alone."""
    have = float(int(chunks * part))
    rarity = Words(chunks=chunks, having={"1": have}).rarity("1")
    assert (chunks + 1) / math.exp(rarity) - 0.5 == pytest.approx(have, abs=0.01)


@given(rows=scored, limit=st.integers(1, 12), rerank=st.booleans(), read=st.integers(1, 12))
def test_hybrid_hits_of_partitions_are_ordered_as_in_one_collection(
    rows: dict[str, tuple[int, int, int]], limit: int, rerank: bool, read: int
) -> None:
    """Where partitions compare all that they have, the joined scores are exactly the same."""
    params = SearchParams(
        mode=SearchMode.HYBRID, limit=limit, rerank="h" if rerank else None, rerank_from=read
    )
    parts = [
        hits_of({one: rows[one] for one in names}, params)
        for names in parted(list(rows), lambda one: one)
    ]
    joined = search.ranked(parts, params)
    one = search.ranked([hits_of(rows, params, everything=True)], params)
    assert [hit.id for hit in joined] == [hit.id for hit in one]
    assert [hit.score for hit in joined] == [hit.score for hit in one]
    assert [hit.rerank_score for hit in joined] == [hit.rerank_score for hit in one]


@given(
    ids=st.lists(st.none() | st.text("abc", min_size=1, max_size=2), min_size=1, max_size=30),
    long=st.integers(1, 9000),
)
def test_an_upload_is_split_by_ids_and_answered_in_its_order(
    ids: list[str | None], long: int
) -> None:
    rows = [
        {"text": f"{n} " * long} | ({} if one is None else {"id": one}) for n, one in enumerate(ids)
    ]

    def read() -> Upload:
        upload = Upload("c", limit=100, partitions=PARTITIONS, new_id=ids_of_key("t", "k"))
        asyncio.run(upload.read_documents([dict(row) for row in rows]))
        upload.finish()
        return upload

    upload = read()
    assert {name: [one.payload for one in specs] for name, specs in upload.parts.items()} == {
        name: [one.payload for one in specs] for name, specs in read().parts.items()
    }
    names = partition_names("c", PARTITIONS)
    results, texts = [], {}
    for name, specs in upload.parts.items():
        for spec in specs:
            work = read_slice(spec.payload)
            assert work.params.collection == name
            items: list[Any] = []
            for item in work.items:
                if isinstance(item, Rejected):
                    items.append(Failed.of(item.error, id=item.id))
                else:
                    assert names[partition_of(item.id, PARTITIONS)] == name
                    texts[item.id] = item.text.decode()
                    items.append(Ingested(id=item.id))
            results.append(Result(items))
    items = [item for result in upload.in_order(results) for item in result.items]
    assert len(items) == len(rows)
    seen: set[str] = set()
    for item, row, one in zip(items, rows, ids, strict=True):
        if one in seen:
            assert item.error.code == "duplicate_id"
        else:
            assert texts[item.id] == row["text"]
            assert one in (None, item.id)
            seen |= set() if one is None else {one}
