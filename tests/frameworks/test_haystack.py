"""Haystack's own suites, and filters against its evaluation in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.testing.document_store import (
    CountDocumentsByFilterTest,
    DocumentStoreBaseExtendedTests,
)
from haystack.testing.document_store_async import (
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
)
from haystack.utils.filters import document_matches_filter
from hypothesis import example, given
from hypothesis import strategies as st
from verso_haystack import (
    VersoDocumentEmbedder,
    VersoDocumentStore,
    VersoRanker,
    VersoRetriever,
    VersoTextEmbedder,
    filter_of,
)
from verso_haystack.dates import with_shadow, without_shadow

from verso_core.jobs.filters.compiled import matches

pytestmark = pytest.mark.filterwarnings("ignore:Verso makes its own vectors")


@pytest.fixture
def document_store(url: str, collection: str) -> VersoDocumentStore:
    """An empty store."""
    return VersoDocumentStore(collection, url=url)


class ByContent:
    """Compares documents without their embeddings, which Verso makes itself, and by id."""

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        plain = [replace(one, embedding=None) for one in expected]
        assert sorted(received, key=lambda one: one.id) == sorted(plain, key=lambda one: one.id)


class TestStore(ByContent, DocumentStoreBaseExtendedTests, CountDocumentsByFilterTest):
    """The suite of document stores, extended."""

    @pytest.fixture
    def document_store(self, url: str, collection: str) -> VersoDocumentStore:
        return VersoDocumentStore(collection, url=url)

    def test_write_documents(self, document_store: Any) -> None:
        """Without a policy duplicates fail."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([Document(content="a"), Document(content="a")])
        assert document_store.filter_documents() == [document]


class TestStoreAsync(
    ByContent,
    CountDocumentsAsyncTest,
    CountDocumentsByFilterAsyncTest,
    DeleteAllAsyncTest,
    DeleteByFilterAsyncTest,
    DeleteDocumentsAsyncTest,
    FilterDocumentsAsyncTest,
    UpdateByFilterAsyncTest,
    WriteDocumentsAsyncTest,
):
    """The asynchronous suites of the same methods."""

    async def test_write_documents_async(self, document_store: Any) -> None:
        """Without a policy duplicates fail."""
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])


def test_embeddings_are_ignored_with_a_warning(document_store: VersoDocumentStore) -> None:
    with pytest.warns(UserWarning, match="makes its own vectors"):
        document_store.write_documents([Document(content="a", embedding=[0.5])])
    [found] = document_store.filter_documents()
    assert found.embedding is None


def test_a_filter_may_have_more_values_than_leaves(document_store: VersoDocumentStore) -> None:
    rows = [0, 11, "2025-01-01", None]
    document_store.write_documents(
        [Document(id=f"d{n}", content="a", meta={"a": row}) for n, row in enumerate(rows)]
    )
    values = ["2025-01-01", None, *range(20, 200), 0]
    for operator, wanted in (("in", {"d0", "d2", "d3"}), ("not in", {"d1"})):
        where = {"field": "meta.a", "operator": operator, "value": values}
        assert {one.id for one in document_store.filter_documents(where)} == wanted


def test_what_is_no_text_is_refused(document_store: VersoDocumentStore) -> None:
    with pytest.raises(ValueError, match="with a text"):
        document_store.write_documents([Document(meta={"a": 1})])


def test_ids_that_no_document_can_have_and_keys_of_the_store_are_told(
    document_store: VersoDocumentStore,
) -> None:
    document_store.write_documents([Document(id="a", content="a"), Document(id="b", content="b")])
    document_store.delete_documents(["", "a#0", "x" * 257, "a"])
    assert [one.id for one in document_store.filter_documents()] == ["b"]
    with pytest.raises(ValueError, match="_dates"):
        document_store.write_documents([Document(content="c", meta={"_dates": {}})])


def test_a_saved_pipeline_retrieves_and_ranks(url: str, document_store: VersoDocumentStore) -> None:
    texts = ["The disk is full.", "The certificate expires in May.", "Rain is expected."]
    document_store.write_documents(
        [Document(content=text, meta={"n": n, "m": n}) for n, text in enumerate(texts)],
        policy=DuplicatePolicy.OVERWRITE,
    )
    pipeline = Pipeline()
    pipeline.add_component("retriever", VersoRetriever(document_store, top_k=3, mode="dense"))
    pipeline.add_component("ranker", VersoRanker("pairs", top_k=2, url=url))
    pipeline.connect("retriever.documents", "ranker.documents")
    loaded = Pipeline.loads(pipeline.dumps(), allowed_modules=["verso_haystack"])
    query = "When does the certificate expire?"
    found = loaded.run({"retriever": {"query": query}, "ranker": {"query": query}})
    [best, second] = found["ranker"]["documents"]
    assert best.content == texts[1]
    assert best.score > second.score
    where = {"field": "meta.m", "operator": "!=", "value": 1}
    retriever = VersoRetriever(document_store, filters=where, filter_policy="merge")
    kept = asyncio.run(
        retriever.run_async(query, filters={"field": "meta.n", "operator": "<", "value": 2})
    )
    assert [one.content for one in kept["documents"]] == [texts[0]]


def test_embedders_give_the_platforms_vectors(url: str) -> None:
    documents = VersoDocumentEmbedder(url=url).run([Document(content="a text")])["documents"]
    assert documents[0].embedding == VersoTextEmbedder(url=url).run("a text")["embedding"]


DATES = st.sampled_from(
    [
        *("2025-01-01", "2025-01-01T00:00:00", "2025-01-01T01:00:00+01:00", "2025-01-01T00:00:00Z"),
        *("2024-12-31T23:30:00-01:00", "2025-01-01T00:30:00.000001", "1969-07-21T20:17:40"),
    ]
)
VALUES = st.one_of(
    st.booleans(), st.integers(-2, 2), st.sampled_from([0.5, 1.0, "", "x"]), st.none(), DATES
)
KEYS = st.sampled_from(["a", "b", "c.d"])
META = st.fixed_dictionaries(
    {}, optional={"a": VALUES, "b": VALUES, "c": st.fixed_dictionaries({}, optional={"d": VALUES})}
)
PREFIX = st.sampled_from(["meta.", ""])


def comparison(operators: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.one_of(st.builds("meta.{}".format, KEYS), st.sampled_from(["a", "b"]))
    return st.fixed_dictionaries(
        {"field": fields, "operator": st.sampled_from(operators), "value": values}
    )


LEAVES = st.one_of(
    comparison(["==", "!="], VALUES),
    comparison(["in", "not in"], st.lists(VALUES, max_size=3)),
    comparison([">", ">=", "<", "<="], st.one_of(st.integers(-2, 2), DATES, st.none())),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries(
        {
            "operator": st.sampled_from(["AND", "OR", "NOT"]),
            "conditions": st.lists(inner, max_size=3),
        }
    ),
    max_leaves=5,
)


@given(filters=FILTERS, meta=META)
@example(
    filters={"field": "meta.a", "operator": ">", "value": "2025-01-01T00:00:00+01:00"},
    meta={"a": "2025-01-01T00:00:00.000001"},
)
def test_a_filter_means_what_it_means_in_memory(
    filters: dict[str, Any], meta: dict[str, Any]
) -> None:
    """Where Haystack compares at all: it raises where a document's value has no order."""
    document = Document(id="x", content="", meta=meta)
    try:
        wanted = document_matches_filter(filters, document)
    except (FilterError, TypeError):
        return
    if has_ordered_boolean(filters, meta):
        return
    stored = with_shadow(meta)
    assert without_shadow(stored) == meta
    assert matches(filter_of(filters), metadata=stored, time=None, id="x") == wanted


def has_ordered_boolean(filters: dict[str, Any], meta: dict[str, Any]) -> bool:
    """Whether a boolean is compared as a number, which the README names as a deviation."""
    if "conditions" in filters:
        return any(has_ordered_boolean(one, meta) for one in filters["conditions"])
    value: Any = meta
    for part in filters["field"].removeprefix("meta.").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return isinstance(value, bool) and filters["operator"] in (">", ">=", "<", "<=")


@pytest.mark.parametrize(
    "filters",
    [
        {"field": "content", "operator": "==", "value": "a"},
        {"field": "meta.a", "operator": "==", "value": ["a"]},
        {"field": "meta.a", "operator": ">", "value": True},
        {"field": "meta.a", "operator": "like", "value": "a"},
        {"operator": "XOR", "conditions": []},
        {"field": "meta.a", "operator": "in", "value": list(range(1000))},
    ],
)
def test_what_no_filter_says_is_refused(filters: dict[str, Any]) -> None:
    with pytest.raises(FilterError, match="expected"):
        filter_of(filters)
